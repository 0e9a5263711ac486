"""Lines of tasks: within a limit per second, and in their order."""

from __future__ import annotations

import gc

from tests.worker.builders import Hands
from weft.protocol.wire import messages as m
from weft.worker.core.events import SchedulerSent, SessionOpened
from weft.worker.core.features import FEATURES
from weft.worker.core.features.output import (
    GRAVE_LEVEL,
    MAX_COUNTED,
    MAX_LINE_CHARS,
    MAX_LINES,
    MAX_RECORDS,
    CatchOutput,
    OutputBuffer,
    OutputCame,
    RecordBuffer,
)
from weft.worker.core.state import WorkerState


def add(buffer, text, now=0.0, level=m.STDOUT, client=1):
    buffer.add(now, client, "key", level, "", text)


class Cycle:
    """Is collected by the collector only, and prints then."""

    def __init__(self, buffer):
        self.me = self
        self.buffer = buffer

    def __del__(self):
        add(self.buffer, "of a finalizer", client=2)


def test_lines_that_a_finalizer_prints_within_another_are_whole_and_none_is_lost():
    before = gc.get_threshold()
    rows = []
    try:
        for n in range(1, 20):  # so many objects are made until the collector runs
            buffer = OutputBuffer()
            gc.collect(0)
            gc.set_threshold(n, 10_000, 10_000)
            Cycle(buffer)
            add(buffer, "one")
            first = buffer.take()
            add(buffer, "two")
            gc.collect(0)
            for message in (first, buffer.take()):
                assert message is not None
                rows += zip(message.clients, message.texts, strict=True)
    finally:
        gc.set_threshold(*before)
    assert sorted(rows) == sorted([(1, "one"), (1, "two"), (2, "of a finalizer")] * 19)


def test_lines_of_all_clients_come_in_their_order():
    buffer = OutputBuffer()
    assert buffer.take() is None
    add(buffer, "one")
    add(buffer, "two", client=2, level=m.STDERR)
    buffer.add(0.0, 1, "other", 20, "lib", "three")
    assert buffer.take() == m.TaskOutput(
        clients=[1, 2, 1],
        keys=["key", "key", "other"],
        levels=[m.STDOUT, m.STDERR, 20],
        names=["", "", "lib"],
        texts=["one", "two", "three"],
    )


def test_lines_beyond_the_limit_of_a_second_are_counted_for_each_client():
    buffer = OutputBuffer()
    for i in range(MAX_LINES + 12):
        add(buffer, str(i), now=5.0 + i / 1000, client=i % 2)
    message = buffer.take()
    assert message.texts == [*map(str, range(MAX_LINES)), "6", "6"]
    assert message.levels[-2:] == [m.DROPPED_LINES] * 2
    assert message.clients[-2:] == [0, 1]
    add(buffer, "late", now=5.9)
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
    state = WorkerState(1, "tcp://me", FEATURES)
    state.handle(SchedulerSent([m.WantOutput(clients=[3], level=20)]), 0.0)
    assert state.before == [CatchOutput(20, [3])]
    state.before.clear()
    state.handle(SchedulerSent([m.WantOutput(clients=[], level=0, loggers={"a": 10})]), 0.0)
    assert state.before == [CatchOutput(0, [], {"a": 10})]
    state.before.clear()
    state.handle(SessionOpened(is_first=False), 1.0)
    assert state.before == [CatchOutput(0, [])]


def test_lines_leave_before_the_reports_that_follow():
    hands = Hands()
    message = m.TaskOutput(clients=[1], keys=["a"], levels=[1], names=[""], texts=["hi"])
    state = hands.state
    state.handle(OutputCame(message), 0.0)
    assert state.to_scheduler == [message]


# --- Records of followed loggers ------------------------------------------------------------------


def record(buffer, name, level, now=0.0):
    if buffer.has_room(now, name, level):
        buffer.add(name, level, b"packed")


def rows(message):
    return list(zip(message.names, message.levels, message.dropped, message.records, strict=True))


def test_records_beyond_the_limit_of_a_second_are_counted_for_each_logger():
    buffer = RecordBuffer()
    assert buffer.take() is None
    for _ in range(MAX_RECORDS):
        record(buffer, "a", 10)
    for _ in range(3):
        record(buffer, "a", 20)
        record(buffer, "b", 10)
    message = buffer.take()
    assert rows(message)[: MAX_RECORDS + 1][-2:] == [("a", 10, 0, b"packed"), ("a", 20, 3, None)]
    assert rows(message)[MAX_RECORDS + 1 :] == [("b", 10, 3, None)]
    record(buffer, "a", 10, now=0.9)
    assert rows(buffer.take()) == [("a", 10, 1, None)]
    record(buffer, "a", 10, now=1.0)
    assert rows(buffer.take()) == [("a", 10, 0, b"packed")]


def test_warnings_are_not_lost_between_records_for_debugging():
    buffer = RecordBuffer()
    for _ in range(2 * MAX_RECORDS):
        record(buffer, "a", 10)
    record(buffer, "a", GRAVE_LEVEL)
    assert rows(buffer.take())[-2:] == [
        ("a", GRAVE_LEVEL, 0, b"packed"),
        ("a", 10, MAX_RECORDS, None),
    ]


def test_loggers_whose_records_were_left_out_are_few():
    buffer = RecordBuffer()
    for _ in range(MAX_RECORDS):
        record(buffer, "a", 10)
    for i in range(3 * MAX_COUNTED):
        record(buffer, f"l{i}", 10)
    left_out = rows(buffer.take())[MAX_RECORDS:]
    assert len(left_out) == MAX_COUNTED + 1
    assert left_out[-1] == ("", 10, 2 * MAX_COUNTED, None)
