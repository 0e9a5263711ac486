"""Lines of tasks: within a limit per second, and in their order."""

from __future__ import annotations

from tests.worker.builders import Hands
from weft.protocol.wire import messages as m
from weft.worker.core.events import CatchOutput, OutputCame, SchedulerSent, SessionOpened
from weft.worker.core.output import MAX_LINE_CHARS, MAX_LINES, OutputBuffer
from weft.worker.core.state import WorkerState


def add(buffer, text, now=0.0, level=m.STDOUT, client=1):
    buffer.add(now, client, "key", level, "", text)


def test_lines_of_all_clients_come_in_their_order():
    buffer = OutputBuffer()
    assert buffer.take() is None
    add(buffer, "one")
    add(buffer, "two", client=2, level=m.STDERR)
    buffer.add(0.0, 1, "other", 20, "lib", "three")
    assert buffer.is_filled
    assert buffer.take() == m.TaskOutput(
        clients=[1, 2, 1],
        keys=["key", "key", "other"],
        levels=[m.STDOUT, m.STDERR, 20],
        names=["", "", "lib"],
        texts=["one", "two", "three"],
    )
    assert not buffer.is_filled


def test_lines_beyond_the_limit_of_a_second_are_counted_for_each_client():
    buffer = OutputBuffer()
    for i in range(MAX_LINES + 12):
        add(buffer, str(i), now=5.0 + i / 1000, client=i % 2)
    message = buffer.take()
    assert message.texts == [*map(str, range(MAX_LINES)), "6", "6"]
    assert message.levels[-2:] == [m.DROPPED_LINES] * 2
    assert message.clients[-2:] == [0, 1]
    add(buffer, "late", now=5.9)
    assert buffer.is_filled
    assert buffer.take().texts == ["1"]
    add(buffer, "next second", now=6.0)
    assert buffer.take().texts == ["next second"]


def test_warnings_and_records_have_a_limit_of_their_own():
    buffer = OutputBuffer()
    for i in range(MAX_LINES + 1):
        add(buffer, str(i))
    add(buffer, "careful", level=m.STDERR)
    buffer.add(0.0, 1, "key", 30, "lib", "bad")
    assert buffer.take().texts[-3:] == ["careful", "bad", "1"]


def test_a_long_line_is_cut():
    buffer = OutputBuffer()
    add(buffer, "x" * (MAX_LINE_CHARS + 1))
    assert buffer.take().texts == ["x" * MAX_LINE_CHARS + " [...]"]


def test_the_shell_is_asked_to_catch_what_the_scheduler_wants_until_the_next_session():
    state = WorkerState(1)
    state.handle(SchedulerSent([m.WantOutput(clients=[3], level=20)]), 0.0)
    assert state.before == [CatchOutput(20, [3])]
    state.before.clear()
    state.handle(SessionOpened(is_first=False), 1.0)
    assert state.before == [CatchOutput(0, [])]


def test_lines_leave_before_the_reports_that_follow():
    hands = Hands()
    message = m.TaskOutput(clients=[1], keys=["a"], levels=[1], names=[""], texts=["hi"])
    state = hands.state
    state.handle(OutputCame(message), 0.0)
    assert state.to_scheduler == [message]
