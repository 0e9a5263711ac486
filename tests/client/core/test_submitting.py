"""The client's core: submissions, their messages, and keys that are shared."""

from __future__ import annotations

import pytest

from weft.client.core.submitting import MAX_OPTIONS, MAX_TASKS
from weft.client.core.tasks import FunctionRecord, TaskColumns
from weft.protocol.wire.messages import (
    KeysData,
    ReleaseKeys,
)
from weft.protocol.wire.options import NO_OPTIONS, TaskOptions

from .core_kit import erred, ready


def test_a_run_of_submissions_is_one_message_and_carries_its_function_once(bench):
    (message,) = bench.do(*[bench.task(f"k{i}") for i in range(100)])
    assert message.keys == [f"k{i}" for i in range(100)]
    assert message.functions == [b"f" * 16]
    assert message.function_blobs == [b"<f>"]
    assert message.function_of == [0] * 100
    assert message.dependencies == []
    assert message.spec_hashes == []


def test_rows_of_different_options_share_a_message(bench):
    equal = [TaskOptions(priority=3), TaskOptions(priority=3)]
    (message,) = bench.do(
        bench.task("a", options=equal[0]),
        bench.task("b", options=equal[1]),
        bench.task("c"),
        bench.task("d", options=TaskOptions(workers=["w"], retries=2)),
        bench.task("e", options=equal[1]),
        bench.task("f", options=equal[0]),
    )
    assert message.keys == ["a", "b", "c", "d", "e", "f"]
    assert message.options == [{"priority": 3}, {}, {"workers": ["w"], "retries": 2}]
    assert message.option_of == [0, 0, 1, 2, 0, 0]
    assert (message.functions, message.function_blobs) == ([b"f" * 16], [b"<f>"])


def test_a_message_of_one_option_does_not_list_it_for_each_row(bench):
    options = TaskOptions(priority=3)
    (message,) = bench.do(
        bench.task("a", options=options), bench.task("b", options=TaskOptions(priority=3))
    )
    assert (message.options, message.option_of) == ([{"priority": 3}], [])
    (message,) = bench.do(bench.task("c"), bench.task("d"))
    assert (message.options, message.option_of) == ([{}], [])


def test_a_message_has_a_limited_number_of_options(bench):
    messages = bench.do(
        *(bench.task(f"t{i}", options=TaskOptions(retries=i)) for i in range(MAX_OPTIONS + 1))
    )
    assert [len(message.options) for message in messages] == [MAX_OPTIONS, 1]
    assert messages[0].option_of == list(range(MAX_OPTIONS))
    assert messages[1].option_of == []


def test_rows_with_ranks_and_rows_without_do_not_share_a_message(bench):
    tasks = [bench.task(key) for key in "abcde"]
    tasks[1].rank, tasks[2].rank = 7, 0
    messages = bench.do(*tasks)
    assert [m.keys for m in messages] == [["a"], ["b", "c"], ["d", "e"]]
    assert [m.ranks for m in messages] == [[], [7, 0], []]


def test_functions_of_one_message_are_numbered(bench):
    other = FunctionRecord(b"g" * 16, b"<g>", "g")
    (message,) = bench.do(
        bench.task("a"), bench.task("b", function=other), bench.task("c"), bench.task("d")
    )
    assert message.functions == [b"f" * 16, b"g" * 16]
    assert message.function_of == [0, 1, 0, 0]


def test_messages_are_cut_by_number_and_by_size(bench):
    messages = bench.do(*[bench.task(f"k{i}") for i in range(MAX_TASKS + 5)])
    assert [len(m.keys) for m in messages] == [MAX_TASKS, 5]
    tasks = [bench.task(f"large-{i}") for i in range(4)]
    for task in tasks:
        task.args = bytes(600_000)
    assert [len(m.keys) for m in bench.do(*tasks)] == [2, 2]


def test_dependencies_and_hashes_fill_the_rows_before_them(bench):
    (message,) = bench.do(
        bench.task("a"),
        bench.task("b", "a"),
        bench.task("c"),
        bench.task("mine", named=b"h" * 16),
        bench.task("d"),
    )
    assert message.dependencies == [[], ["a"], [], [], []]
    assert message.spec_hashes == [bytes(16), bytes(16), bytes(16), b"h" * 16, bytes(16)]


def test_columns_go_out_as_they_are(bench):
    columns = bench.columns(["a", "b"])
    (message,) = bench.do(columns)
    assert message.keys == ["a", "b"]
    assert message.args is columns.args
    assert message.function_blobs == [b"<f>"]
    (message,) = bench.do(bench.columns(["c"]))
    assert message.function_blobs == [None]


def test_a_function_is_sent_again_after_its_last_key_was_released(bench):
    task = bench.task("a")
    bench.do(task)
    assert bench.do(task.state) == [ReleaseKeys(keys=["a"])]
    (message,) = bench.do(bench.task("b"))
    assert message.function_blobs == [b"<f>"]


def test_a_failed_task_does_not_count_for_its_function(bench):
    bench.do(bench.task("a"))
    bench.hear(erred("a"))
    (message,) = bench.do(bench.task("b"))
    assert message.function_blobs == [b"<f>"]


def test_releases_leave_after_the_submissions_of_the_same_turn(bench):
    a = bench.task("a")
    b = bench.task("b", "a")
    c = bench.task("c", "b")
    submit, release = bench.do(a, b, a.state, c, b.state)
    assert submit.keys == ["a", "b", "c"]
    assert release == ReleaseKeys(keys=["a", "b"])


def test_a_shared_key_is_submitted_once_and_released_with_its_last_future(bench):
    first, second = bench.task("a"), bench.task("a")
    assert first.state is second.state
    (message,) = bench.do(first, second)
    assert message.keys == ["a"]
    assert bench.do(first.state) == []
    assert bench.do(second.state) == [ReleaseKeys(keys=["a"])]
    assert bench.table.states == {}


def test_a_future_attached_while_a_release_is_queued_keeps_the_key(bench):
    first = bench.task("a")
    bench.do(first)
    queue = [first.state]  # released, not handled yet
    second = bench.task("a")
    assert second.state is first.state
    assert bench.do(*queue, second) == []
    assert bench.state("a").n_references == 1


def test_a_key_that_was_released_and_submitted_again_is_a_new_state(bench):
    first = bench.task("a")
    state = first.state
    bench.do(first)
    bench.do(state)
    second = bench.task("a")
    assert second.state is not state
    _barrier, message = bench.do(second)
    assert message.keys == ["a"]


def test_a_failed_task_is_submitted_again_and_not_shared(bench):
    first = bench.task("a")
    bench.do(first)
    bench.hear(erred("a"))
    second = bench.task("a")
    assert second.state is not first.state
    release, barrier, submit = bench.do(second)
    assert release == ReleaseKeys(keys=["a"])
    assert submit.keys == ["a"]
    assert submit.function_blobs == [b"<f>"]
    bench.hear(KeysData(request=barrier.request, keys=[], results=[], missing=[]), ready(["a"]))
    assert (first.state.status, second.state.status) == ("error", "finished")
    # The key is the new one's now.
    assert bench.do(first.state) == []
    assert bench.do(second.state) == [ReleaseKeys(keys=["a"])]


def test_a_dependent_of_a_failed_task_is_sent_because_it_may_be_retried(bench):
    bench.do(bench.task("a"))
    bench.hear(erred("a", root="root"))
    (sent,) = bench.do(bench.task("b", "a"))
    assert (sent.keys, sent.dependencies) == (["b"], [["a"]])
    assert bench.state("b").status == "pending"


def test_a_dependent_of_a_task_that_cannot_be_retried_fails_without_being_sent(bench):
    bench.do(bench.task("a"))
    bench.hear(erred("a", root="root", kind="not-permitted"))
    assert bench.do(bench.task("b", "a"), bench.columns(["c"], [["b"]])) == []
    assert bench.state("c").status == "error"
    assert bench.state("c").failure[1] == "root"
    assert bench.do(bench.state("c")) == []


def test_a_key_of_another_task_is_refused(bench):
    bench.do(bench.task("mine", named=b"h" * 16))
    with pytest.raises(ValueError, match="another function"):
        bench.table.attach(["mine"], [b"i" * 16])
    assert bench.state("mine").n_references == 1


def test_the_same_key_twice_in_one_map_is_one_task(bench):
    states, _ = bench.table.attach(["a", "b", "a"])
    columns = TaskColumns(states, bench.function, [b"1", b"2", b"1"], [], NO_OPTIONS)
    (message,) = bench.do(columns)
    assert message.keys == ["a", "b"]
    assert bench.state("a").n_references == 2
