"""The client's core with its out-boxes, and messages of a scheduler to it."""

from __future__ import annotations

from contextlib import nullcontext

from tests.outbox import outboxes
from weft.client.core.events import (
    AnswersReceived,
    Connected,
    Operations,
)
from weft.client.core.features import FEATURES
from weft.client.core.state import ClientState
from weft.client.core.table import FutureTable
from weft.client.core.tasks import FunctionRecord, FutureState, TaskColumns, TaskRecord, Watcher
from weft.client.core.validate import validate
from weft.protocol.wire.messages import (
    FetchKeys,
    KeysErred,
    KeysInMemory,
    ResultsReady,
)
from weft.protocol.wire.options import NO_OPTIONS


class Bench:
    """A core, and a user in front of it."""

    def __init__(self) -> None:
        self.table = FutureTable(nullcontext())
        self.core = ClientState(self.table, FEATURES)
        self.function = FunctionRecord(b"f" * 16, b"<f>", "f")
        self.now = 0.0
        #: {columns: the states that they had before the core took them}
        self.made = {}

    def handle(self, event):
        self.now += 1
        self.core.handle(event, self.now)
        validate(self.core)
        core = self.core
        messages, actions = outboxes(core.to_scheduler, [*core.before, *core.after])
        core.before, core.to_scheduler, core.after = [], [], []
        return messages, actions

    def sent(self, event):
        """Handle an event that leads to messages only."""
        messages, actions = self.handle(event)
        assert not actions
        return messages

    def acted(self, event):
        """Handle an event that leads to actions only."""
        messages, actions = self.handle(event)
        assert not messages
        return actions

    def connect(self, epoch=0):
        return self.sent(Connected(epoch))

    def handle_connected(self, **facts):
        return self.handle(Connected(**facts))

    def do(self, *operations):
        return self.sent(Operations(list(operations)))

    def task(self, key, *dependencies, options=NO_OPTIONS, function=None, named=None):
        (state,), replaced = self.table.attach([key], [named] if named else None)
        args = b"<args of %s>" % key.encode()
        return TaskRecord(
            state,
            function or self.function,
            args,
            list(dependencies),
            options,
            named,
            replaced[0] if replaced else None,
        )

    def columns(self, keys, dependencies=()):
        states = [FutureState(key) for key in keys]
        self.table.add(states)
        args = [b"<args of %s>" % key.encode() for key in keys]
        columns = TaskColumns(states, self.function, args, list(dependencies), NO_OPTIONS)
        self.made[columns] = states
        return columns

    def hear(self, *messages):
        return self.handle(AnswersReceived(list(messages)))

    def acted_on(self, *messages):
        """Hear messages that lead to actions only."""
        return self.acted(AnswersReceived(list(messages)))

    def state(self, key):
        return self.table.states[key]


class Listener(Watcher):
    pass


def ready(keys, prefix=b"result of "):
    return ResultsReady(keys=keys, results=[prefix + key.encode() for key in keys])


def barrier_of(messages):
    """Return the question by whose answer the client knows that all before it was read."""
    (question,) = messages.of(FetchKeys)
    assert question.keys == []
    return question


def in_memory(keys, nbytes=100, holder="tcp://w:1"):
    return KeysInMemory(
        keys=keys, nbytes=[nbytes] * len(keys), holder_of=[0] * len(keys), holders=[holder]
    )


def erred(key, root=None, kind="exception"):
    failure = [kind, root or key, b"", "T", "t", "", b""]
    return KeysErred(keys=[key], failure_of=[0], failures=[failure])
