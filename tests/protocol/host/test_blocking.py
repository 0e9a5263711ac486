"""blocking.py: what happens around a wait of the calling thread."""

from __future__ import annotations

import contextlib
import threading

from weft.protocol.host.blocking import TaskWait, blocked, on_blocked_here


def test_nothing_happens_on_a_thread_without_a_hook():
    with blocked(), blocked():
        pass


def test_a_hook_is_called_around_waits_of_its_own_thread_only():
    steps: list[str] = []

    @contextlib.contextmanager
    def enter(wait, _may_stay):
        steps.append("begin" if wait is None else f"begin: {wait.keys}")
        yield
        steps.append("end")

    def wait():
        with blocked():
            steps.append("wait")

    on_blocked_here(enter)
    try:
        wait()
        assert steps == ["begin", "wait", "end"]
        steps.clear()
        with blocked(TaskWait(["a"], print)):
            pass
        assert steps == ["begin: ['a']", "end"]
        steps.clear()
        other = threading.Thread(target=wait)
        other.start()
        other.join(30)
        assert steps == ["wait"]
    finally:
        on_blocked_here(None)
    steps.clear()
    wait()
    assert steps == ["wait"]
