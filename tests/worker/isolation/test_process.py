"""A child process that ends in ways of its own, and what is left of it here."""

from __future__ import annotations

import pytest

from tests.leaks import Snapshot, leaks_since
from weft.worker.isolation.process import IsolatedProcess
from weft.worker.policy import Isolation

#: More than a socket holds: who sends it waits for a reader.
LARGE = b"x" * 10_000_000


def test_a_child_that_ends_before_it_is_greeted_leaves_nothing():
    before = Snapshot.take()
    child = IsolatedProcess(Isolation("weft_has_no_such_module"), [LARGE])
    with pytest.raises(EOFError):
        child.link.receive()
    reason, _ = child.kill()
    assert reason == "its process ended with exit code 1"
    assert not leaks_since(before)


def test_a_child_that_cannot_be_started_leaves_nothing():
    before = Snapshot.take()
    with pytest.raises(OSError, match="Argument list too long"):
        IsolatedProcess(Isolation("m" * 3_000_000), [])
    assert not leaks_since(before)
