"""The sampler of stacks, on real threads: what it sees, when it runs, and when it ends."""

from __future__ import annotations

import threading

import pytest

from weft.protocol.stack_tree import StackFrame
from weft.worker.measuring import stack_sampling
from weft.worker.measuring.stack_sampling import StackSampler, calls_of_task, function_of_task

LOAD = "load-0123456789abcdef0123456789abcdef"
entered, released = threading.Event(), threading.Event()


def outer():
    inner()


def inner():
    entered.set()
    released.wait(60)


@pytest.fixture
def working():
    """A thread that waits in `inner`, called by `outer`."""
    entered.clear()
    released.clear()
    thread = threading.Thread(target=outer)
    thread.start()
    assert entered.wait(30)
    yield thread
    released.set()
    thread.join()


def names_in(stack):
    return [frame.name for frame in stack]


def test_a_sample_names_the_function_of_the_task_and_its_calls(working):
    sampler = StackSampler(lambda: [(LOAD, working.ident)])
    (stack,) = sampler.sample()
    assert stack[0] == StackFrame("load")
    assert "outer" in names_in(stack)
    place = names_in(stack).index("outer")
    assert stack[place] == StackFrame("outer", __file__, outer.__code__.co_firstlineno)
    assert stack[place + 1].name == "inner"


@pytest.mark.parametrize(
    ("key", "name"),
    [
        (LOAD, "load"),
        ("load-me-0123456789ab-17", "load-me"),
        ("('sum-0123456789abcdef0123456789abcdef', 3)", "sum"),
        ("my key", "outer"),
    ],
)
def test_tasks_of_one_function_have_one_name(key, name):
    assert function_of_task(key, [StackFrame("there.outer", "x.py", 1)]) == name


def test_a_key_of_a_user_is_the_name_where_no_call_is_seen():
    assert function_of_task("my key", []) == "my key"


def test_a_thread_that_has_ended_is_left_out():
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()
    assert StackSampler(lambda: [("a", thread.ident)]).sample() == []


def test_sampling_begins_with_a_question_and_ends_by_itself(working, wait_until):
    sampler = StackSampler(lambda: [(LOAD, working.ident)])
    assert sampler.join()
    first = sampler.read(60.0)
    assert first.tree.n_samples == 0
    wait_until(lambda: sampler.read(0.0).tree.n_samples >= 3)
    later = sampler.read(0.0)
    assert later.session == first.session
    assert later.tree.functions() == {"load": later.tree.n_samples}
    sampler.close()
    assert sampler.join()
    assert sampler.read(60.0).tree.n_samples >= 3  # nothing begins again
    assert sampler.join()


def test_sampling_that_nothing_asks_for_ends_and_is_forgotten(working, wait_until):
    sampler = StackSampler(lambda: [(LOAD, working.ident)])
    first = sampler.read(0.0)
    wait_until(sampler.join)
    again = sampler.read(0.0)
    assert again.session != first.session
    assert again.tree.n_samples == 0
    wait_until(sampler.join)


def test_calls_that_are_too_deep_leave_out_the_outer_ones(monkeypatch):
    monkeypatch.setattr(stack_sampling, "_MAX_WALKED", 3)

    def recurse(n):
        import sys

        return recurse(n - 1) if n else calls_of_task(sys._getframe())

    assert [frame.name.rpartition(".")[2] for frame in recurse(10)] == ["recurse"] * 3


def test_calls_of_weft_and_of_its_event_loop_around_a_task_are_left_out():
    import sys

    from weft.worker.slots.coroutines import as_call

    async def work():
        return calls_of_task(sys._getframe())

    found = []
    thread = threading.Thread(target=lambda: found.extend(as_call(work)()))
    thread.start()
    thread.join()
    # Below the loop is this test's thread, which a slot would be.
    ours = [frame for frame in found if frame.file == __file__]
    assert [frame.name.rpartition(".")[2] for frame in ours] == ["<lambda>", "work"]


def test_code_of_a_package_beside_weft_is_not_taken_for_its_own():
    assert not __file__.startswith(stack_sampling._OWN_FOLDERS)
    assert stack_sampling.__file__.startswith(stack_sampling._OWN_FOLDERS)
