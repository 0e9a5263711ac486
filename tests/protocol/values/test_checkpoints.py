"""checkpoints.py: a result is a file of its own, which equal calls read."""

from __future__ import annotations

import builtins
import pickle

import fsspec
import numpy as np
import pytest

from weft.protocol.errors import SerializationError
from weft.protocol.values.checkpoints import Checkpointed


class Counted:
    """A function that counts its calls."""

    def __init__(self):
        self.n = 0

    def __reduce__(self):
        return Counted, ()

    def __call__(self, *args, **kwargs):
        self.n += 1
        return [*args, kwargs]


@pytest.fixture
def counted():
    return Counted()


def test_an_equal_call_reads_the_result_also_in_another_run(counted, tmp_path):
    kept = Checkpointed(counted, tmp_path / "new" / "folder")
    assert kept(1, b=2, a="x") == [1, {"b": 2, "a": "x"}]
    assert kept(1, a="x", b=2) == [1, {"b": 2, "a": "x"}]
    assert counted.n == 1
    again = pickle.loads(pickle.dumps(kept))
    assert again(1, b=2, a="x") == [1, {"b": 2, "a": "x"}]
    assert (counted.n, again.__wrapped__.n) == (1, 0)
    (path,) = (tmp_path / "new" / "folder").iterdir()
    assert path.name.startswith("Counted-")
    assert pickle.loads(path.read_bytes()) == [1, {"b": 2, "a": "x"}]


def test_other_arguments_and_other_functions_have_other_files(counted, tmp_path):
    kept = Checkpointed(counted, tmp_path)
    for arguments in [(1,), (2,), ("1",), (1, 1), ([1],)]:
        kept(*arguments)
    assert counted.n == 5
    assert Checkpointed(lambda x: x + 1, tmp_path)(1) == 2
    assert Checkpointed(lambda x: x + 2, tmp_path)(1) == 3
    assert len(list(tmp_path.iterdir())) == 7


def test_arrays_are_told_apart_by_their_content(counted, tmp_path):
    kept = Checkpointed(counted, tmp_path)
    array = np.arange(1_000_000)
    kept(array)
    kept(np.arange(1_000_000))
    assert counted.n == 1
    array[999_999] = 0
    kept(array)
    assert counted.n == 2


def test_a_failure_leaves_nothing_and_a_result_that_cannot_be_pickled_neither(tmp_path):
    def fail():
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        Checkpointed(fail, tmp_path)()
    with pytest.raises((TypeError, SerializationError)):
        Checkpointed(lambda: (i for i in "ab"), tmp_path)()
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_file_is_made_again_and_said(counted, tmp_path, caplog):
    kept = Checkpointed(counted, tmp_path)
    kept(1)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-3])
    assert kept(1) == [1, {}]
    assert counted.n == 2
    assert f"{path} cannot be read, and is made again" in caplog.text
    assert pickle.loads(path.read_bytes()) == [1, {}]


def test_a_file_that_cannot_be_written_as_a_whole_is_not_there(counted, tmp_path, monkeypatch):
    from fsspec.implementations.local import LocalFileOpener

    monkeypatch.setattr(LocalFileOpener, "write", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        Checkpointed(counted, tmp_path)(1)
    assert list(tmp_path.iterdir()) == []


def test_any_file_system_of_fsspec_has_the_files(counted):
    url = "memory://test-checkpoints"
    fs = fsspec.filesystem("memory")
    try:
        kept = Checkpointed(counted, url)
        assert kept(5) == kept(5) == [5, {}]
        assert counted.n == 1
        assert len(fs.ls(url)) == 1
    finally:
        fs.rm(url, recursive=True)


@pytest.mark.parametrize("url", ["", 5, b"/tmp"])
def test_a_url_that_is_none_is_an_error(url):
    with pytest.raises(TypeError):
        Checkpointed(abs, url)


def test_coroutine_functions_are_refused():
    async def later():
        """Do nothing."""

    with pytest.raises(TypeError, match="coroutine function"):
        Checkpointed(later, "/tmp")


def test_a_missing_fsspec_is_an_error_that_says_how_to_install_it(monkeypatch, tmp_path):
    real = builtins.__import__

    def without(name, *args):
        if name.startswith("fsspec"):
            raise ImportError(name)
        return real(name, *args)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"not installed here: pip install 'weft\[persist\]'"):
        Checkpointed(abs, tmp_path)
