"""Wrong calls, any calls in any order, and states that break an invariant of the objects."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.scheduler.builders import Board, graph
from tests.scheduler.callers import Caller
from tests.scheduler.core.coordination.objects_kit import is_empty
from weft.protocol.errors import InvalidState
from weft.protocol.wire import messages as m
from weft.protocol.wire.levels import Level
from weft.protocol.wire.messages import coordination as h
from weft.protocol.wire.roles import Role
from weft.scheduler.core.coordination import operating
from weft.scheduler.core.coordination.invariants import OBJECT_INVARIANTS
from weft.scheduler.core.coordination.marks import Mark, marks_of
from weft.scheduler.core.coordination.recording import recorded_of
from weft.scheduler.core.coordination.records import Call, Holder, MetadataRecord, objects_of
from weft.scheduler.core.coordination.topics import topics_of
from weft.scheduler.core.coordination.values import values_of
from weft.scheduler.core.invariants.validate import validate
from weft.scheduler.core.records.deadlines import Deadline
from weft.scheduler.core.records.peers import ClientHandle

# --- Wrong calls ----------------------------------------------------------------------------------


def test_a_viewer_may_not_operate(board):
    viewer = board.connect(Role.VIEWER)
    out = board.send(viewer, m.Operate(request=3, operation="set", kind=h.EVENT, name="x"))
    assert out[viewer] == [m.Denied(request=3, needed=Level.CLIENT.label, level=Level.VIEW.label)]


@pytest.mark.parametrize(
    ("kind", "operation", "arguments"),
    [
        ("tree", "climb", {}),
        (h.LOCK, "create", {}),
        (h.LOCK, "acquire", {}),
        (h.LOCK, "acquire", {"lease": 1, "owner": "t"}),
        (h.LOCK, "acquire", {"lease": "1", "owner": ""}),
        (h.LOCK, "restate", {"lease": "1"}),
        (h.SEMAPHORE, "acquire", {"lease": "1", "owner": "t", "limit": 0}),
        (h.SEMAPHORE, "create", {"limit": -1}),
        (h.SEMAPHORE, "create", {"limit": True}),
        (h.SEMAPHORE, "create", {"limit": 1 << 50}),
        (h.MULTILOCK, "acquire", {"lease": "1", "owner": "t"}),
        (h.MULTILOCK, "acquire", {"lease": "1", "owner": "t", "names": []}),
        (h.MULTILOCK, "acquire", {"lease": "1", "owner": "t", "names": [1]}),
        (h.MULTILOCK, "acquire", {"lease": "1", "owner": "t", "names": ["a", "a"]}),
        (h.MULTILOCK, "acquire", {"lease": "1", "owner": "t", "names": ["a"], "number": 2}),
        (h.MULTILOCK, "restate", {"lease": "1", "owner": "t", "names": "a"}),
        (h.QUEUE, "create", {"maxsize": -1}),
        (h.QUEUE, "get", {"number": 0}),
        (h.QUEUE, "get", {"number": 1 << 30}),
    ],
)
def test_a_wrong_call_is_refused_and_changes_nothing(board, alice, kind, operation, arguments):
    assert alice.call(kind, operation, **arguments) == h.BAD_CALL
    board.send(alice.peer, m.Bye(reason=""))
    assert board.refused() == []
    assert is_empty(board)


@pytest.mark.parametrize("argument", [None, "1", [1], 10**30, -1, True])
def test_sessions_of_wrong_content_change_nothing(board, alice, argument):
    alice.acquire()
    for operation, name in ((h.WITHDRAW, "request"), (h.RESUME, "pending")):
        message = m.Operate(request=70, operation=operation, arguments={name: argument})
        board.send(alice.peer, message)
    board.send(alice.peer, m.Operate(request=71, operation=h.WITHDRAW, arguments={"request": 71}))
    assert board.refused() == []
    assert alice.call(h.LOCK, "count") == {"n": 1}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_any_calls_in_any_order_leave_nothing_behind(seed):
    rng = random.Random(seed)
    board = Board(client_lease_s=5.0)
    worker = board.worker()
    callers = [Caller(board, name) for name in "abc"]
    board.send(callers[0].peer, graph("k1", "k2"))
    operations = [(kind, op) for kind, of in operating.KINDS.items() for op in of.operations]
    for _ in range(300):
        caller = rng.choice(callers)
        roll = rng.random()
        if roll < 0.03:
            board.close(caller.peer)
            if rng.random() < 0.5:
                board.tick(rng.choice([1.0, 6.0]))
            callers[callers.index(caller)] = back = Caller(board, caller.name)
            back._numbers = caller._numbers
        elif roll < 0.1:
            caller.withdraw(rng.randint(1, 300))
        elif roll < 0.15:
            board.tick(rng.random())
        elif roll < 0.17:
            for key in ("k1", "k2"):
                if board.states(key) == ["processing"]:
                    board.finish(worker, key)
        else:
            kind, operation = rng.choice(operations)
            arguments: dict[str, Any] = {"lease": rng.choice("12"), "owner": rng.choice("tu")}
            arguments |= {"limit": 2} if kind == h.SEMAPHORE else {}
            arguments |= {"maxsize": rng.choice([0, 2])} if kind == h.QUEUE else {}
            arguments |= {"number": rng.choice([1, 2])} if kind == h.QUEUE else {}
            if kind == h.MULTILOCK:
                arguments["names"] = rng.sample("wxyz", k=rng.randint(1, 3))
                arguments["number"] = rng.randint(1, len(arguments["names"]))
            arguments["timeout"] = rng.choice([None, 0, 0.5, 3])
            if operation in ("put", "set"):
                arguments["values"] = [b"v"]
                arguments["keys"] = rng.sample(["k1", "k2"], k=rng.randint(0, 2))
            if rng.random() < 0.5:
                arguments["acknowledged"] = [rng.randint(1, 300)]
            caller.call(kind, operation, rng.choice("nm"), **arguments)
        assert not [why for why in board.refused() if "silent" not in why]
    for caller in callers:
        for name in "nm":
            caller.call(h.QUEUE, "close", name)
            caller.call(h.VARIABLE, "delete", name)
            caller.call(h.EVENT, "clear", name)
    for caller in callers:
        board.send(caller.peer, m.Bye(reason=""))
    assert is_empty(board)
    assert objects_of(board.state).calls == {}
    assert board.state.tasks == {}
    board.drop_rest()


# --- The invariants -------------------------------------------------------------------------------


class BrokenObjects:
    """A board with objects of each kind, whose state is to be broken by hand."""

    def __init__(self) -> None:
        self.board = Board()
        self.state = self.board.state
        alice, bob = Caller(self.board, "alice"), Caller(self.board, "bob")
        alice.acquire()
        bob.acquire(timeout=100)
        alice.acquire(kind=h.MULTILOCK, names=["a"], number=1)
        alice.call(h.EVENT, "set", "set")
        self.board.send(alice.peer, graph("k"))
        alice.put(b"v", "k")
        bob.call(h.VARIABLE, "get")
        alice.acquire(kind=h.LIMIT, limit=5, per_s=1.0)
        self.objects = objects_of(self.state)
        self.alice, self.bob = self.state.clients.values()
        self.lock, self.multi, self.event, self.queue, self.variable, self.limit = (
            self.objects.records.values()
        )
        self.waiting = next(iter(self.objects.calls[self.bob].waiting.values()))
        self.stranger = ClientHandle("stranger", "stranger", 9)

    def forget_wait(self) -> None:
        self.objects.calls[self.bob].waiting.pop(self.waiting.request)

    def turn_round(self) -> None:
        Caller(self.board, "carl").acquire(timeout=100)
        self.waiting.place += 10

    def put_off(self) -> None:
        self.objects.deferred[Call(self.bob, 77, h.LOCK, "x", "acquire", {})] = None

    def miscount_value(self) -> None:
        self.queue.items[0].n_uses += 1

    def miscount_metadata(self) -> None:
        record = MetadataRecord(h.METADATA, "all")
        record.tree["a"] = 1
        self.objects.records[h.METADATA, "all"] = record

    def miscount_key(self) -> None:
        values_of(self.state).n_uses["k"] += 1

    def want_more(self) -> None:
        values_of(self.state).n_uses.clear()


BREAKAGES = {
    "coordination objects are filed by kind and name": lambda b: setattr(b.lock, "name", "y"),
    "no coordination object is idle": lambda b: setattr(b.event, "is_set", False),
    "a semaphore has at most as many leases as its limit": lambda b: setattr(b.lock, "limit", 0),
    "the due turn of a limit is a deadline": lambda b: setattr(
        b.limit, "due", Deadline(0.0, None, ())
    ),
    "holders are leases of clients that use the object": lambda b: b.lock.holders.update(
        {Holder(b.stranger, "1"): "t"}
    ),
    "each lock of a MultiLock is held by a holder with an owner": lambda b: b.multi.holders.clear(),
    "each owner of a MultiLock holds one of its locks": lambda b: b.multi.holders.update(
        {Holder(b.alice, "2"): "t"}
    ),
    "users of coordination objects are known clients, and have it among their records": lambda b: (
        b.objects.calls[b.alice].records.pop(b.lock)
    ),
    "clients with calls are known": lambda b: b.objects.calls.update(
        {b.stranger: b.objects.calls[b.alice]}
    ),
    "records of a client have it among their users": lambda b: b.event.users.clear(),
    "no lane of a coordination object is empty": lambda b: b.lock.lanes.update({"other": {}}),
    "a call in a lane waits there, and its client has it": lambda b: b.forget_wait(),
    "the calls of a lane are in the order in which they came": lambda b: b.turn_round(),
    "a call that is given something waits aside while its client is away": lambda b: setattr(
        b.bob, "peer", None
    ),
    "waits files calls in lanes by the thread or task that waits": lambda b: b.objects.waits.update(
        {77: b.waiting}
    ),
    "a call that waits is in its lane, or put off": lambda b: b.lock.lanes.clear(),
    "a call is not both answered and waiting": lambda b: b.objects.calls[b.bob].answered.update(
        {b.waiting.request: next(iter(b.objects.calls[b.alice].answered.values()))}
    ),
    "calls are put off only while recovering": lambda b: b.put_off(),
    "a call put off is one that waits": lambda b: b.put_off(),
    "a call with a time limit that waits in a lane has a deadline": lambda b: setattr(
        b.waiting, "deadline", None
    ),
    "no call waits whose turn has come": lambda b: b.lock.holders.clear(),
    "n_uses of a value counts its places": lambda b: b.miscount_value(),
    "durable values are filed by the numbers under which they are recorded": lambda b: recorded_of(
        b.state
    ).places.update({1: ("queue", "x")}),
    "kept bytes are the sum over the values": lambda b: setattr(values_of(b.state), "nbytes", 0),
    "the size of the metadata is the sum over its items": lambda b: b.miscount_metadata(),
    "marks are filed by the number of what is set, and by the place of what is deleted": lambda b: (
        marks_of(b.state).set.clear()
    ),
    "a mark without a number has marks below it": lambda b: marks_of(b.state).root.below.update(
        {"?": Mark()}
    ),
    "what has the mark of a setting is there": lambda b: setattr(b.event, "is_set", False),
    "events of topics are filed in the order in which they came": lambda b: topics_of(
        b.state
    ).order.update({5: b.queue}),
    "the size of a topic, and of all, is the sum over the events": lambda b: setattr(
        topics_of(b.state), "nbytes", 1
    ),
    "topics with events are filed by name": lambda b: topics_of(b.state).records.update(t=b.queue),
    "n_uses of a key counts the values with it": lambda b: b.miscount_key(),
    "the keeper wants only tasks of values, and they know it": lambda b: b.want_more(),
}


@pytest.mark.parametrize("name", OBJECT_INVARIANTS)
def test_each_broken_invariant_is_named(name):
    broken = BrokenObjects()
    validate(broken.state)
    BREAKAGES[name](broken)
    with pytest.raises(InvalidState) as error:
        validate(broken.state)
    assert name in str(error.value)
