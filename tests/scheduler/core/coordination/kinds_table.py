"""A row for each operation of each kind of coordination objects: how it is called, and waits.

`test_kinds.py` has the laws. A new kind, or operation, is tested by all of them with its row here,
and fails without.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.scheduler.callers import Caller
from weft.protocol.wire.messages import coordination as h
from weft.scheduler.core.coordination.kinds import KINDS
from weft.scheduler.core.coordination.records import ObjectOperation

#: (kind, operation)
Name = tuple[str, str]
#: (somebody, the one whose wait was answered last, or the first holder)
LetGo = Callable[[Caller, Caller], object]

VALUE = {"values": [b"v"]}
HELD: Mapping[str, Mapping[str, Any]] = {
    h.LOCK: {},
    h.SEMAPHORE: {"limit": 1},
    h.LIMIT: {"limit": 1, "per_s": 0},
    h.MULTILOCK: {"names": ["a"], "number": 1},
}


def operation_of(name: Name) -> ObjectOperation:
    return KINDS[name[0]].operations[name[1]]


def own(caller: Caller) -> dict[str, str]:
    """Return the lease of a caller, which is needed where something is held."""
    return {"lease": caller.name, "owner": caller.name}


# -- calls that wait -------------------------------------------------------------------------------
@dataclass(frozen=True)
class Wait:
    """A call that waits, and what ends the wait."""

    answer: Any
    #: ends the wait of the first one, or of all that wait
    let_go: LetGo
    #: what somebody does first, so that the others have to wait
    hold: Callable[[Caller], object] = lambda _somebody: None
    #: beside the lease of the caller
    arguments: Callable[[Caller], Mapping[str, Any]] = lambda _caller: {}
    #: all that wait go on together
    is_shared: bool = False
    #: what is answered when its time is over
    late: Any = h.LATE


def lease(kind: str, **more: Any) -> Wait:
    def acquire(caller: Caller) -> object:
        return caller.call(kind, "acquire", **own(caller), **HELD[kind])

    return Wait(
        answer={"granted": True, **more},
        late={"granted": False},
        hold=acquire,
        arguments=lambda _caller: HELD[kind],
        let_go=lambda _, holder: holder.call(kind, "release", **own(holder), **HELD[kind]),
    )


WAITS: Mapping[Name, Wait] = {
    (h.LOCK, "acquire"): lease(h.LOCK),
    (h.SEMAPHORE, "acquire"): lease(h.SEMAPHORE),
    (h.LIMIT, "acquire"): lease(h.LIMIT),
    (h.MULTILOCK, "acquire"): lease(h.MULTILOCK, names=["a"]),
    (h.EVENT, "wait"): Wait(
        answer={"set": True},
        late={"set": False},
        let_go=lambda somebody, _: somebody.call(h.EVENT, "set"),
        is_shared=True,
    ),
    (h.COUNT_DOWN, "wait"): Wait(
        answer={"open": True},
        late={"open": False},
        let_go=lambda somebody, _: somebody.call(h.COUNT_DOWN, "count_down"),
        is_shared=True,
    ),
    (h.QUEUE, "get"): Wait(answer=[b"v"], let_go=lambda somebody, _: somebody.put(b"v")),
    (h.QUEUE, "put"): Wait(
        answer={},
        hold=lambda somebody: somebody.put(b"first", maxsize=1),
        arguments=lambda _caller: {**VALUE, "maxsize": 1},
        let_go=lambda somebody, _: somebody.get(maxsize=1),
    ),
    (h.VARIABLE, "get"): Wait(
        answer=[b"v"],
        let_go=lambda somebody, _: somebody.call(h.VARIABLE, "set", **VALUE),
        is_shared=True,
    ),
    (h.TOPIC, "next"): Wait(
        answer=[b"v"],
        late={},
        arguments=lambda caller: {"after": caller.call(h.TOPIC, "last")["last"]},
        let_go=lambda somebody, _: somebody.call(h.TOPIC, "log", time=5.0, **VALUE),
        is_shared=True,
    ),
}


# -- all calls -------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Example:
    """A call that is done at once."""

    answer: Any
    arguments: Mapping[str, Any] = field(default_factory=dict)
    #: what the same client calls before
    before: Callable[[Caller], object] = lambda _caller: None
    #: of an object of which there is one
    name: str = "x"


def lease_examples(kind: str, **more: Any) -> dict[Name, Example]:
    """Return the examples of a kind whose leases are held."""
    options = {"lease": "l", "owner": "t", **HELD[kind]}

    def acquire(caller: Caller) -> object:
        return caller.call(kind, "acquire", **options)

    return {
        (kind, "acquire"): Example({"granted": True, **more}, options),
        (kind, "release"): Example({}, options, before=acquire),
        (kind, "restate"): Example({}, options),
        (kind, "count"): Example({"n": 1}, HELD[kind], before=acquire),
    }


def put(caller: Caller) -> object:
    return caller.put(b"v")


def set_variable(caller: Caller) -> object:
    return caller.call(h.VARIABLE, "set", **VALUE)


def publish(caller: Caller) -> object:
    return caller.call(h.DATASET, "publish", "all", dataset="d", **VALUE)


def set_metadata(caller: Caller) -> object:
    return caller.call(h.METADATA, "set", "all", path=["a"], value=1)


EXAMPLES: dict[Name, Example] = {
    **lease_examples(h.LOCK),
    **lease_examples(h.SEMAPHORE),
    (h.SEMAPHORE, "create"): Example({}, {"limit": 1}),
    (h.SEMAPHORE, "close"): Example({}, {"limit": 1}),
    **lease_examples(h.LIMIT),
    **lease_examples(h.MULTILOCK, names=["a"]),
    (h.EVENT, "wait"): Example(
        {"set": True}, before=lambda caller: caller.call(h.EVENT, "set")
    ),
    (h.EVENT, "set"): Example({"set": True}),
    (h.EVENT, "restate"): Example({}, {"number": 1}),
    (h.EVENT, "clear"): Example({"set": False}),
    (h.EVENT, "is_set"): Example({"set": False}),
    (h.COUNT_DOWN, "create"): Example({}, {"n": 2}),
    (h.COUNT_DOWN, "count_down"): Example({"n": 1}, {"n": 2}),
    (h.COUNT_DOWN, "count"): Example({"n": 2}, {"n": 2}),
    (h.COUNT_DOWN, "wait"): Example(
        {"open": True}, before=lambda caller: caller.call(h.COUNT_DOWN, "count_down")
    ),
    (h.QUEUE, "create"): Example({}),
    (h.QUEUE, "put"): Example({}, VALUE),
    (h.QUEUE, "get"): Example([b"v"], before=put),
    (h.QUEUE, "drain"): Example([b"v"], before=put),
    (h.QUEUE, "count"): Example({"n": 1}, before=put),
    (h.QUEUE, "close"): Example({}, before=put),
    (h.VARIABLE, "set"): Example({}, VALUE),
    (h.VARIABLE, "restate"): Example({}, {**VALUE, "number": 1}),
    (h.VARIABLE, "get"): Example([b"v"], before=set_variable),
    (h.VARIABLE, "delete"): Example({}, before=set_variable),
    (h.BACKGROUND, "keep"): Example(
        {"unknown": ["k"], "n_unknown": 1}, {"keys": ["k"]}, name="all"
    ),
    (h.DATASET, "publish"): Example({}, {"dataset": "d", **VALUE}, name="all"),
    (h.DATASET, "restate"): Example({}, {"dataset": "d", "number": 1, **VALUE}, name="all"),
    (h.DATASET, "get"): Example([b"v"], {"dataset": "d"}, before=publish, name="all"),
    (h.DATASET, "delete"): Example({}, {"names": ["d"]}, before=publish, name="all"),
    (h.DATASET, "list"): Example([b"\x90"], name="all"),
    (h.METADATA, "set"): Example({}, {"path": ["a"], "value": 1}, name="all"),
    (h.METADATA, "restate"): Example({}, {"path": ["a"], "value": 1, "number": 1}, name="all"),
    (h.METADATA, "get"): Example([b"\x01"], {"path": ["a"]}, before=set_metadata, name="all"),
    (h.METADATA, "delete"): Example(
        {"found": True}, {"path": ["a"]}, before=set_metadata, name="all"
    ),
    (h.TOPIC, "log"): Example({}, {"time": 5.0, **VALUE}),
    (h.TOPIC, "all"): Example({"numbers": [], "times": []}),
    (h.TOPIC, "last"): Example({"last": 0}),
    (h.TOPIC, "names"): Example({"names": ["scheduler"]}),
    (h.TOPIC, "next"): Example(
        [b"v"],
        {"after": 0},
        before=lambda caller: caller.call(h.TOPIC, "log", time=5.0, **VALUE),
    ),
}  # fmt: skip
del EXAMPLES[h.MULTILOCK, "count"]

#: What the last client of a kind calls, so that nothing is left of an object that outlives clients.
REMOVALS: Mapping[str, Callable[[Caller], object]] = {
    h.EVENT: lambda caller: caller.call(h.EVENT, "clear"),
    h.QUEUE: lambda caller: caller.call(h.QUEUE, "close"),
    h.VARIABLE: lambda caller: caller.call(h.VARIABLE, "delete"),
    h.DATASET: lambda caller: caller.call(h.DATASET, "delete", "all", names=["d"]),
    h.METADATA: lambda caller: caller.call(h.METADATA, "delete", "all", path=[]),
}
#: Events stay until others take their room.
STAYS = {h.TOPIC}
