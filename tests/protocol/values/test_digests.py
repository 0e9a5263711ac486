"""The name of the content of large arguments: equal for equal buffers, on every machine."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.protocol.values import digests
from weft.protocol.values.digests import digest_of

_buffers = st.lists(st.binary(max_size=40), max_size=5)


def test_digest_never_changes():
    # Clients of several releases share the arguments of a cluster.
    assert digest_of([b"abc", b""]) == "a99e03b3105efefd6cb7690322152506"


@given(_buffers, _buffers)
def test_different_buffers_have_different_digests(one, other):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(digests, "_PIECE_NBYTES", 8)
        assert (digest_of(one) == digest_of(other)) == (one == other)


@given(_buffers)
def test_kind_of_buffer_makes_no_difference(buffers):
    kinds = (bytes, bytearray, memoryview)
    mixed = [kinds[i % 3](buffer) for i, buffer in enumerate(buffers)]
    assert digest_of(mixed) == digest_of(buffers)


def test_number_of_threads_makes_no_difference(monkeypatch):
    monkeypatch.setattr(digests, "_PIECE_NBYTES", 8)
    buffers = [bytes(range(100)), bytes(7)]
    alone = digest_of(buffers)
    started = []

    class Noted(threading.Thread):
        def start(self):
            started.append(self)
            super().start()

    monkeypatch.setattr(digests, "_NBYTES_PER_THREAD", 8)
    monkeypatch.setattr(digests, "n_cores", lambda: 3)
    monkeypatch.setattr(digests.threading, "Thread", Noted)
    assert digest_of(buffers) == alone
    assert len(started) == 2


def test_content_is_hashed_where_no_thread_can_be_started(monkeypatch):
    alone = digest_of([b"abc"])
    n_started = []

    class Failing(threading.Thread):
        def start(self):
            if n_started:
                raise RuntimeError("can't start new thread")
            n_started.append(1)
            super().start()

    monkeypatch.setattr(digests, "_NBYTES_PER_THREAD", 1)
    monkeypatch.setattr(digests, "n_cores", lambda: 3)
    monkeypatch.setattr(digests.threading, "Thread", Failing)
    before = threading.active_count()
    assert digest_of([b"abc"]) == alone
    assert len(n_started) == 1
    assert threading.active_count() == before
