"""Durable values, by events of the scheduler's core, and over restarts of it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scheduler.builders import Board, graph
from tests.scheduler.callers import Caller
from weft.protocol.wire import messages as m
from weft.protocol.wire.messages import coordination as h
from weft.protocol.wire.plain import unpack
from weft.scheduler.core.coordination.records import objects_of
from weft.scheduler.core.coordination.values import values_of
from weft.scheduler.core.events import Event, SchedulerTick
from weft.scheduler.core.journal.entries import (
    JobAdded,
    JobEnded,
    JournalRead,
    JournalWritten,
    ValueKept,
    ValuesDropped,
    WriteJournal,
)
from weft.scheduler.core.journal.feature import RETRY_S

EPOCH = 10**12


class WritingBoard(Board):
    """A board that keeps what its events want to be recorded, in order."""

    def __init__(self, writes: list[WriteJournal], **options: Any) -> None:
        super().__init__(**options)
        self.writes = writes

    def _play(self, event: Event) -> None:
        super()._play(event)
        self.writes += [one for one in self.actions if isinstance(one, WriteJournal)]
        self.actions = []


class Disk:
    """What the journal has recorded, and the schedulers that are started with it."""

    def __init__(self) -> None:
        self.values: dict[int, ValueKept] = {}
        self.results: dict[str, Any] = {}
        self.jobs: dict[str, JobAdded] = {}
        self.writes: list[WriteJournal] = []
        self.requests: dict[str, itertools.count[int]] = {}
        self.epoch = EPOCH
        self.start()

    def start(self) -> None:
        """Start a scheduler; what was not recorded is lost."""
        self.writes = []
        self.epoch += 1
        self.board = WritingBoard(self.writes, epoch=self.epoch << 20)
        values = [self.values[number] for number in sorted(self.values)]
        keys = {key for one in values for key in one.keys}
        read = JournalRead(
            jobs=[job for key, job in self.jobs.items() if key not in self.results],
            ended=dict.fromkeys(self.results, "done"),
            results={key: self.results[key] for key in keys & self.results.keys()},
            values=values,
        )
        self.board.play(SchedulerTick(journal=[read]))

    def write(self, error: str = "") -> None:
        """Record the oldest batch, or fail to."""
        write = self.writes.pop(0)
        for entry in write.entries if not error else ():
            if isinstance(entry, ValueKept):
                for number in entry.replaces:
                    self.values.pop(number, None)
                self.values[entry.number] = entry
            elif isinstance(entry, ValuesDropped):
                for number in entry.numbers:
                    self.values.pop(number, None)
            elif isinstance(entry, JobAdded):
                self.jobs[entry.key] = entry
            elif isinstance(entry, JobEnded) and entry.result is not None:
                self.results[entry.key] = entry.result
        self.board.play(SchedulerTick(journal=[JournalWritten(write.number, error)]))

    def write_all(self) -> None:
        while self.writes:
            self.write()

    def blobs(self) -> list[object]:
        """Return the values that are recorded; a durable queue itself has none."""
        return [one.blob for _, one in sorted(self.values.items()) if one.blob is not None]

    def caller(self, name: str = "alice") -> Caller:
        """Return a client, which may have been there before: its requests go on."""
        caller = Caller(self.board, name)
        caller._numbers = self.requests.setdefault(name, itertools.count(1))
        return caller


@pytest.fixture
def disk() -> Disk:
    return Disk()


def done(disk: Disk, caller: Caller, *call: Any, **arguments: Any) -> Any:
    """Return the answer to a call, which comes when all is recorded."""
    answer = caller.call(*call, durable=True, **arguments)
    while answer is None and disk.writes:
        disk.write()
        answer = caller.answers().get(caller.request)
    disk.write_all()
    return answer


KEPT = {h.DURABLE: True}


def test_a_put_is_answered_when_it_is_recorded(disk):
    alice = disk.caller()
    assert alice.put(b"1", durable=True) is None
    message = m.Operate(
        request=1, operation="put", kind=h.QUEUE, name="x", arguments=KEPT, values=[b"1"]
    )
    assert disk.board.send(alice.peer, message) == {}  # it is asked again, and still not recorded
    disk.write()
    assert alice.answers() == {1: KEPT}
    assert disk.board.send(alice.peer, message).of(alice.peer, m.Operated)


def test_values_of_a_queue_come_back_in_their_order_until_their_taker_has_them(disk):
    alice = disk.caller()
    for value in (b"1", b"2", b"3"):
        assert done(disk, alice, h.QUEUE, "put", values=[value], maxsize=5) == KEPT
    assert alice.get() == [b"1"]
    disk.start()
    alice = disk.caller()
    assert alice.drain() == [b"1", b"2", b"3"]
    assert alice.call(h.QUEUE, "create", maxsize=6) == h.OTHER_LIMIT
    alice.call(h.QUEUE, "count", acknowledged=[alice.request - 1])
    disk.write_all()
    assert disk.blobs() == []


def test_a_queue_becomes_durable_with_the_values_that_it_has(disk):
    alice, bob = disk.caller(), disk.caller("bob")
    alice.put(b"1")
    assert bob.call(h.QUEUE, "create", durable=True) is None
    disk.write("the disk is full")
    assert bob.answers() == {1: h.NOT_RECORDED}
    assert alice.call(h.QUEUE, "count") == {"n": 1}  # nobody has promised that it is durable
    alice.put(b"2")  # in a queue that is durable already
    disk.board.tick(RETRY_S + 0.1)
    disk.write_all()
    assert disk.blobs() == [b"1", b"2"]
    assert alice.call(h.QUEUE, "close") is None
    disk.write_all()
    assert alice.answers() == {alice.request: {}}
    assert disk.values == {}


def test_a_value_that_cannot_be_recorded_is_in_no_queue(disk):
    alice, bob = disk.caller(), disk.caller("bob")
    alice.put(b"1", durable=True, maxsize=1)
    assert bob.put(b"2") is None  # there is no room
    disk.write("the disk is full")
    assert alice.answers() == {1: h.NOT_RECORDED}
    assert "put of queue 'x' is not recorded: the disk is full" in alice.text
    disk.write_all()
    assert bob.answers() == {1: KEPT}
    assert bob.drain() == [b"2"]


def test_a_value_that_was_taken_before_it_could_not_be_recorded_is_not_there_twice(disk):
    alice, bob = disk.caller(), disk.caller("bob")
    alice.put(b"1", durable=True)
    assert bob.get() == [b"1"]
    disk.write("the disk is full")
    assert alice.answers() == {1: h.NOT_RECORDED}
    assert bob.call(h.QUEUE, "count", acknowledged=[1]) == {"n": 0}


def test_a_taken_value_is_dropped_later_if_it_cannot_be_now(disk):
    alice = disk.caller()
    done(disk, alice, h.QUEUE, "put", values=[b"1"])
    assert alice.get() == [b"1"]
    alice.call(h.QUEUE, "count", acknowledged=[2])
    disk.write("the disk is full")
    assert disk.blobs() == [b"1"]
    disk.board.tick(RETRY_S + 0.1)
    disk.write_all()
    assert disk.blobs() == []


def test_a_put_whose_answer_was_lost_with_the_scheduler_is_done_once(disk):
    alice = disk.caller()
    alice.put(b"1", durable=True)
    disk.write()
    disk.start()
    alice = disk.caller()
    assert alice.put(b"1", durable=True, request=1) == KEPT
    assert alice.drain() == [b"1"]


def test_bytes_that_wait_for_the_disk_are_counted(disk):
    alice = disk.caller()
    for _ in range(3):
        alice.call(h.VARIABLE, "set", values=[bytes(1 << 20)], durable=True)
    assert values_of(disk.board.state).nbytes > 3 << 20
    disk.write_all()
    assert values_of(disk.board.state).nbytes < 2 << 20


SETTINGS = {
    h.VARIABLE: ("set", "get", "delete", {"values": [b"1"]}, {"values": [b"2"]}, {}),
    h.DATASET: (
        "publish",
        "get",
        "delete",
        {"values": [b"1"], "dataset": "d"},
        {"values": [b"2"], "dataset": "d", "override": True},
        {"dataset": "d", "names": ["d"]},
    ),
    h.METADATA: (
        "set",
        "get",
        "delete",
        {"path": ["a", "b"], "value": 1},
        {"path": ["a", "b"], "value": 2},
        {"path": ["a", "b"]},
    ),
}
NAMES = {h.VARIABLE: "x", h.DATASET: h.DATASETS_NAME, h.METADATA: h.METADATA_NAME}


def content(caller: Caller, kind: str) -> Any:
    _, get, _, _, _, of = SETTINGS[kind]
    arguments = {"timeout": 0, **of}
    arguments.pop("names", None)
    answer = caller.call(kind, get, NAMES[kind], **arguments)
    if kind == h.METADATA and isinstance(answer, list):
        return str(unpack(answer[0])).encode()
    return answer[0] if isinstance(answer, list) else None


@pytest.mark.parametrize("kind", SETTINGS)
def test_the_last_setting_is_there_after_a_restart_until_it_is_deleted(disk, kind):
    put, _, delete, first, second, of = SETTINGS[kind]
    alice = disk.caller()
    assert done(disk, alice, kind, put, NAMES[kind], **first) is not None
    alice.call(kind, put, NAMES[kind], durable=True, **second)
    disk.start()  # before that was recorded
    assert content(disk.caller(), kind) == b"1"
    assert done(disk, disk.caller("bob"), kind, put, NAMES[kind], **second) is not None
    disk.start()
    carol = disk.caller("carol")
    assert content(carol, kind) == b"2"
    assert carol.call(kind, delete, NAMES[kind], **of) is None
    disk.write_all()
    assert disk.values == {}
    disk.start()
    assert content(disk.caller(), kind) is None


@pytest.mark.parametrize("kind", SETTINGS)
def test_recorded_settings_count_before_those_that_a_client_states_again(disk, kind):
    put, _, _, first, second, _ = SETTINGS[kind]
    alice, bob = disk.caller(), disk.caller("bob")
    alice.call(kind, put, NAMES[kind], durable=True, **first)
    disk.write_all()
    (number,) = alice.numbers() or [0]
    done(disk, bob, kind, put, NAMES[kind], **second)
    assert disk.board.rest() == ["Operated"]  # to alice: it is overtaken
    disk.start()
    alice = disk.caller()
    first = {name: x for name, x in first.items() if name != "override"}
    alice.call(kind, "restate", NAMES[kind], number=number, durable=True, **first)
    assert alice.superseded() == [number]
    assert content(alice, kind) == b"2"


@pytest.mark.parametrize("kind", SETTINGS)
def test_a_setting_that_is_stated_again_is_recorded_where_the_journal_was_lost(disk, kind):
    put, _, _, first, _, _ = SETTINGS[kind]
    alice = disk.caller()
    alice.call(kind, put, NAMES[kind], durable=True, **first)
    disk.write()
    (number,) = alice.numbers()
    disk.values = {}
    disk.start()
    disk.caller().call(kind, "restate", NAMES[kind], number=number, durable=True, **first)
    disk.write_all()
    disk.start()
    assert content(disk.caller("bob"), kind) == b"1"


@pytest.mark.parametrize("kind", SETTINGS)
def test_a_setting_that_cannot_be_recorded_holds_until_the_scheduler_ends(disk, kind):
    put, _, _, first, _, _ = SETTINGS[kind]
    alice = disk.caller()
    alice.call(kind, put, NAMES[kind], durable=True, **first)
    disk.write("the disk is full")
    assert alice.answers() == {1: h.NOT_RECORDED}
    assert content(alice, kind) == b"1"
    disk.start()
    assert content(disk.caller(), kind) is None


@pytest.mark.parametrize("kind", SETTINGS)
def test_an_earlier_setting_is_recorded_until_its_successor_is(disk, kind):
    put, _, _, first, second, _ = SETTINGS[kind]
    alice = disk.caller()
    done(disk, alice, kind, put, NAMES[kind], **first)
    alice.call(kind, put, NAMES[kind], durable=True, **second)
    disk.write("the disk is full")
    assert alice.answers() == {2: h.NOT_RECORDED}
    assert len(disk.values) == 1
    assert content(alice, kind) == b"2"
    disk.board.tick(RETRY_S + 0.1)
    disk.write("the disk is full")
    disk.board.tick(RETRY_S + 0.1)
    disk.write_all()
    assert len(disk.values) == 1
    disk.start()
    assert content(disk.caller(), kind) == b"2"


@pytest.mark.parametrize("kind", SETTINGS)
def test_a_deletion_drops_an_earlier_setting_whose_successor_was_not_recorded(disk, kind):
    put, _, delete, first, second, of = SETTINGS[kind]
    alice = disk.caller()
    done(disk, alice, kind, put, NAMES[kind], **first)
    alice.call(kind, put, NAMES[kind], durable=True, **second)
    alice.call(kind, delete, NAMES[kind], **of)
    disk.write("the disk is full")
    disk.board.tick(RETRY_S + 0.1)
    disk.write_all()
    disk.start()
    assert content(disk.caller(), kind) is None


def metadata(caller: Caller, path: list[str]) -> Any:
    answer = caller.call(h.METADATA, "get", h.METADATA_NAME, path=path)
    return unpack(answer[0]) if isinstance(answer, list) else None


def test_all_below_durable_metadata_is_durable(disk):
    alice = disk.caller()

    def put(path: str, value: object, **more: Any) -> None:
        alice.call(h.METADATA, "set", h.METADATA_NAME, path=path.split("/"), value=value, **more)
        disk.write_all()

    put("a", {"b": 1}, durable=True)
    put("a/c", 2)
    put("d", 3)
    put("e/f", 4, durable=True)
    put("e", {"f": 5, "g": 6})  # what was durable is replaced
    put("h/i/j", 7, durable=True)
    put("h/i", 8, durable=True)
    alice.call(h.METADATA, "delete", h.METADATA_NAME, path=["a", "b"])
    disk.write_all()
    disk.start()
    assert metadata(disk.caller(), []) == {"a": {"c": 2}, "h": {"i": 8}}
    disk.caller("bob").call(h.METADATA, "delete", h.METADATA_NAME, path=[])
    disk.write_all()
    assert disk.values == {}


def test_futures_in_durable_values_are_those_of_jobs(disk):
    alice = disk.caller()
    worker = disk.board.worker()
    disk.board.send(alice.peer, graph("a", "b", detached=True), graph("c"))
    disk.write_all()
    assert done(disk, alice, h.QUEUE, "put", values=[b"v"], keys=["c"]) == h.NOT_RECORDED
    assert "submit it with detached=True" in alice.text
    assert done(disk, alice, h.QUEUE, "put", values=[b"v"], keys=["a", "b"]) == KEPT
    disk.board.finish(worker, "a", blob=b"result")
    disk.write_all()
    disk.start()
    assert {*disk.board.states("a", "b")} == {"no_worker"}
    bob = disk.caller("bob")
    assert bob.get() == [b"v"]
    bob.call(h.QUEUE, "count", acknowledged=[bob.request])
    disk.write_all()
    assert disk.board.states("a", "b") == ["-", "no_worker"]  # the job goes on


def test_without_a_journal_nothing_is_durable():
    alice = Caller(Board(), "alice")
    assert alice.put(b"1", durable=True) == h.NOT_RECORDED
    assert "state directory" in alice.text
    assert alice.put(b"1", durable=1) == h.BAD_CALL
    assert alice.call(h.QUEUE, "count") == {"n": 0}


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_no_value_whose_put_was_answered_is_lost_or_out_of_order(data):
    """Two clients, a disk that fails at times, and schedulers that are killed at any instant."""
    Board.made.clear()
    disk = Disk()
    answered: list[bytes] = []  # puts
    taken: list[bytes] = []  # and acknowledged, which is recorded or will be
    may_be_there: set[bytes] = set()
    in_hand: dict[int, bytes] = {}
    sent: dict[int, bytes] = {}
    alice, bob = disk.caller(), disk.caller("bob")

    def look() -> None:
        for number, answer in alice.answers().items():
            if number in sent:
                value = sent.pop(number)
                if answer == KEPT:
                    answered.append(value)
                else:
                    may_be_there.discard(value)

    for step in range(data.draw(st.integers(5, 40))):
        what = data.draw(st.sampled_from(["put", "get", "ack", "write", "fail", "kill", "undo"]))
        if what == "put":
            value = b"%03d" % step
            may_be_there.add(value)
            alice.put(value, durable=True)
            sent[alice.request] = value
            look()
        elif what == "get":
            answer = bob.get(timeout=0)
            if isinstance(answer, list):
                in_hand[bob.request] = answer[0]
        elif what == "ack" and in_hand:
            request = min(in_hand)
            taken.append(in_hand.pop(request))
            bob.call(h.QUEUE, "count", acknowledged=[request])
        elif what == "undo" and in_hand:
            request = max(in_hand)
            del in_hand[request]
            bob.withdraw(request)
        elif what == "kill":
            disk.start()
            alice, bob = disk.caller(), disk.caller("bob")
            in_hand = {}
            for request, value in sent.items():  # alice lives on, and sends what is not answered
                alice.put(value, durable=True, request=request)
        if what in ("write", "fail") and disk.writes:
            disk.write("the disk is full" if what == "fail" else "")
            look()
    disk.start()
    left = disk.caller("carol").drain(number=0) or []
    left = left if isinstance(left, list) else []
    assert len({*left}) == len(left)
    assert {*answered} <= {*left, *taken}
    assert {*left} <= may_be_there
    Board.made.clear()


def test_a_durable_queue_is_durable_until_it_is_closed(disk):
    alice = disk.caller()
    done(disk, alice, h.QUEUE, "put", values=[b"1"])
    disk.start()
    assert [*objects_of(disk.board.state).records] == [(h.QUEUE, "x")]
    alice = disk.caller()
    assert alice.get() == [b"1"]
    note = m.Operate(request=0, operation=h.NOTE, acknowledged=[alice.request])
    disk.board.send(alice.peer, note)
    disk.board.send(alice.peer, m.Bye(reason=""))
    disk.board.close(alice.peer)
    disk.write_all()
    assert disk.blobs() == []
    disk.start()
    assert disk.caller("bob").put(b"2") is None  # not before it is recorded
    disk.write_all()
    assert disk.blobs() == [b"2"]
    carol = disk.caller("carol")
    carol.call(h.QUEUE, "close")
    disk.write_all()
    disk.board.send(carol.peer, m.Bye(reason=""))
    disk.board.close(carol.peer)
    assert disk.values == {}
