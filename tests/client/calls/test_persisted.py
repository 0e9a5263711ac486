"""`persist_to=` of `submit` and `map`: what is in files is not computed again."""

from __future__ import annotations

import pytest

import weft


@pytest.fixture
def client():
    with weft.Client(processes=False, n_workers=1) as client:
        yield client


def test_calls_of_another_client_read_what_was_persisted(client, tmp_path):
    def note(x, *, by=1):
        with open(tmp_path / "calls", "a") as file:
            file.write(f"{x} ")
        return x * by

    folder = tmp_path / "results"
    assert client.gather(client.map(note, range(4), by=10, persist_to=folder)) == [0, 10, 20, 30]
    future = client.submit(note, client.submit(abs, -3), by=10, persist_to=folder, timeout="60s")
    assert (future.result(), future.key[:5]) == (30, "note-")
    with weft.Client(processes=False, n_workers=1, set_as_default=False) as other:
        again = other.map(note, range(5), by=10, persist_to=f"file://{folder}")
        assert other.gather(again) == [0, 10, 20, 30, 40]
    calls = (tmp_path / "calls").read_text().split()
    assert sorted(calls) == ["0", "1", "2", "3", "4"]


def test_a_keyword_that_the_function_does_not_take_is_refused_at_the_call(client, tmp_path):
    def double(x):
        return 2 * x

    with pytest.raises(TypeError, match="unexpected keyword argument 'y'"):
        client.submit(double, 1, y=2, persist_to=tmp_path)
    with pytest.raises(TypeError, match="did you mean the option persist_to="):
        client.submit(double, 1, persists_to=tmp_path)
    with pytest.raises(TypeError, match="URL or path of a folder"):
        client.map(double, [1], persist_to=5)
