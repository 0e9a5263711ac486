"""Locks, queues and others in the simulation: users call them, hold, give back and give up.

A user believes to hold a lock from the answer that grants it until its release. What is asserted:
whoever believes it, and is in a session whose leases the scheduler has confirmed, is a holder at
the scheduler; `validate` asserts that there are no more holders than the limit. So no two users
hold a lock at a time, except for one that is cut off and does not know it yet. A value leaves a
queue once, and none is lost as long as the scheduler is not, whatever becomes of clients. What a
client believes to have set is there, also at a scheduler that was started again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from weft.client.core.features.coordination import AnswerTaken, CallAbandoned, ObjectCall, calls_of
from weft.client.core.features.remembered import remembered_of
from weft.client.core.tasks import SENT, Watcher
from weft.protocol.wire.messages import Operated
from weft.protocol.wire.messages import coordination as h
from weft.scheduler.core.coordination.leases import LeaseRecord
from weft.scheduler.core.coordination.marks import marks_of
from weft.scheduler.core.coordination.records import (
    Holder,
    QueueRecord,
    objects_of,
)

from .graphs import TASK_LOCKS

if TYPE_CHECKING:
    from .client_node import ClientNode
    from .client_process import ClientProcess
    from .simulation import Simulation

NAMES = ("x", "y")
_COUNTED = (h.SEMAPHORE, h.LIMIT)
#: Locks that threads take one after the other, in any order, and never give up.
NESTED = ("n1", "n2")


class ObjectWatcher(Watcher):
    """Waits for the answer to one call."""

    __slots__ = ("answers", "call", "client", "users")

    def __init__(self, users: ObjectUsers, client: ClientProcess) -> None:
        super().__init__(wants_data=False)
        self.users = users
        self.client = client
        self.answers: list[Any] = []
        self.call: ObjectCall

    def on_ready(self, items: list[Any]) -> None:
        """See `Watcher`."""
        self.answers += items
        assert len(self.answers) == 1, f"{self.call!r} was answered twice"
        (answer,) = items
        if isinstance(answer, Operated) and self.client.is_alive:
            self.users.on_answer(self, answer)


class ObjectUsers:
    """What the users of all clients know of their locks and values."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        #: {watcher: None} of calls that were not answered or given up
        self.waiting: dict[ObjectWatcher, None] = {}
        #: {lease: (client, kind, name)} that users believe to have
        self.believed: dict[str, tuple[ClientProcess, str, str]] = {}
        #: values whose `put` was answered, and those that were taken
        self.put: dict[bytes, None] = {}
        self.taken: Counter[bytes] = Counter()
        #: {thread: the locks that it has still to take}
        self.nested: dict[str, list[str]] = {}
        self.is_over = False

    # -- what users do ----------------------------------------------------------------------------
    def act(self) -> None:
        """Let a user do a random operation."""
        rng = self.sim.world.rng
        clients = [client for client in self.sim.clients if client.is_alive]
        if not clients:
            return
        client = rng.choice(clients)
        if rng.random() < 0.25:
            owner = self.sim.new_id("thread")
            self.nested[owner] = rng.sample(NESTED, 2)
            self.go_on_taking(client, owner)
            return
        kinds = [
            h.LOCK,
            h.LOCK,
            h.SEMAPHORE,
            h.MULTILOCK,
            h.EVENT,
            h.QUEUE,
            h.VARIABLE,
            h.COUNT_DOWN,
        ]
        kind = rng.choice([*kinds, h.LIMIT, h.BACKGROUND, h.DATASET, h.METADATA, h.TOPIC])
        name = "all" if kind == h.MULTILOCK else rng.choice(NAMES)
        operation = rng.choice(
            {
                h.EVENT: ["set", "clear", "wait"],
                h.COUNT_DOWN: ["count_down", "wait", "count"],
                h.QUEUE: ["put", "put", "get", "drain"],
                h.VARIABLE: ["set", "get", "delete"],
                h.BACKGROUND: ["keep"],
                h.DATASET: ["publish", "get", "delete"],
                h.METADATA: ["set", "get", "delete"],
                h.TOPIC: ["log", "log", "all", "last", "next"],
            }.get(kind, ["acquire"])
        )
        arguments: dict[str, Any] = {}
        limit = rng.choice([None, 0.0, 0.1, 5.0])
        if limit is not None:
            arguments["timeout"] = limit
        if operation == "acquire":
            # Each call is of another thread.
            arguments |= {"lease": self.sim.new_id("lease"), "owner": self.sim.new_id("thread")}
        if kind in _COUNTED:
            arguments["limit"] = 2
        if kind == h.LIMIT:
            arguments["per_s"] = 2.0
        if kind == h.MULTILOCK:
            arguments |= {"names": rng.sample(NAMES, k=rng.randint(1, 2)), "number": 1}
        if kind == h.DATASET:
            arguments = {"dataset": name, "names": [name], "override": rng.random() < 0.5}
            name = "all"
        if kind == h.TOPIC and operation in ("log", "next"):
            arguments |= {"time": self.sim.world.now} if operation == "log" else {"after": 0}
        if kind == h.METADATA:
            path = rng.choices(["a", "b"], k=rng.randint(1, 3))
            arguments = {"path": path, "value": rng.random()}
            name = "all"
        if kind == h.QUEUE and operation != "drain":
            arguments["maxsize"] = 3
        watcher = self.call(client, kind, name, operation, arguments)
        if limit is None or rng.random() < 0.2:
            self.sim.world.at(rng.random() * 3.0, self.give_up, watcher)

    def go_on_taking(self, client: ClientNode, owner: str) -> None:
        """Let a thread take its next lock; release all after the last one, or when one fails."""
        left = self.nested[owner]
        leases = [lease for lease in self.believed if lease.startswith(f"{owner}:")]
        if left and len(leases) == 2 - len(left):
            name = left.pop()
            self.call(client, h.LOCK, name, "acquire", {"lease": f"{owner}:{name}", "owner": owner})
            return
        del self.nested[owner]
        for lease in leases:
            self.release(lease)

    def call(
        self, client: ClientNode, kind: str, name: str, operation: str, arguments: dict[str, Any]
    ) -> ObjectWatcher:
        """Let a user call."""
        values, keys = [], []
        if operation in ("put", "set", "publish", "log") and kind not in (h.EVENT, h.METADATA):
            values = [self.sim.new_id("value").encode()]
            sent = [f.state.key for f in client.futures if f.state.phase == SENT]
            keys = sent[:1] if kind != h.TOPIC and self.sim.world.chance(0.5) else []
        if kind == h.BACKGROUND:
            keys = [future.state.key for future in client.futures[-5:]]
        watcher = ObjectWatcher(self, client)
        client.post(self.made(watcher, kind, name, operation, arguments, values, keys))
        return watcher

    def made(
        self,
        watcher: ObjectWatcher,
        kind: str,
        name: str,
        operation: str,
        arguments: dict[str, Any],
        values: Sequence[bytes] = (),
        keys: Sequence[str] = (),
    ) -> ObjectCall:
        """Make a call that its client is to post."""
        watcher.call = ObjectCall(
            watcher, kind, name, operation, arguments, list(values), list(keys)
        )
        self.waiting[watcher] = None
        return watcher.call

    def give_up(self, watcher: ObjectWatcher) -> None:
        """Interrupt a call that was not answered."""
        if watcher.client.is_alive and self.waiting.pop(watcher, self) is None:
            self.sim.world.probes["objects: given up"] += 1
            watcher.client.post(CallAbandoned(watcher.call))

    def on_answer(self, watcher: ObjectWatcher, answer: Operated) -> None:
        """Take what a call has got; an answer to one that was given up is not taken."""
        if self.waiting.pop(watcher, self) is self:
            return
        client, call, world = watcher.client, watcher.call, self.sim.world
        world.probes[f"objects: {call.operation} {answer.problem or 'done'}"] += 1
        problems = ("", h.LATE, h.KEY_LOST, h.HOLD_LOST, h.EXISTS, h.UNKNOWN_NAME)
        may_cycle = call.name in NESTED or call.name in TASK_LOCKS
        assert answer.problem in problems or (may_cycle and answer.problem == h.CYCLE), answer
        client.post(AnswerTaken(call, has_futures=bool(answer.keys)))
        if answer.info.get("granted") is True:
            lease = call.arguments["lease"]
            self.believed[lease] = (client, call.kind, call.name)
        if call.name in NESTED and call.operation == "acquire":
            self.go_on_taking(client, call.arguments["owner"])
        elif answer.info.get("granted") is True and call.name not in TASK_LOCKS:
            world.at(world.rng.random() * 2.0, self.release, lease)
        if call.kind == h.QUEUE:
            if call.operation == "put" and not answer.problem:
                self.put[_plain(call.values[0])] = None
            for value in answer.values:
                self._take(_plain(value))

    def _take(self, value: bytes) -> None:
        self.taken[value] += 1
        # A put that was not answered is done again where the scheduler has forgotten the client.
        assert self.taken[value] == 1 or self._has_forgotten(), f"{value!r} was taken twice"

    def release(self, lease: str) -> None:
        """Let a user release a lock."""
        found = self.believed.pop(lease, None)
        if found is not None and found[0].is_alive:
            client, kind, name = found
            arguments = {"lease": lease, "limit": 2} if kind in _COUNTED else {"lease": lease}
            if name in TASK_LOCKS:
                arguments |= {"limit": 1}
            elif kind == h.LIMIT:
                arguments["per_s"] = 2.0
            watcher = ObjectWatcher(self, client)
            client.post(self.made(watcher, kind, name, "release", arguments))

    # -- checks -----------------------------------------------------------------------------------
    def _is_unexpected(self, client: ClientProcess) -> bool:
        """Return whether the scheduler did not wait for a client, because others were on record.

        Members are put on record once a second. The last scheduler may have ended before that.
        """
        expected = self.sim.scheduler.core.kept_members.expected
        is_any_expected = expected.worker_ids or expected.client_ids
        return bool(is_any_expected) and client.client_id not in expected.client_ids

    def check(self, client: ClientProcess) -> None:
        """Assert that the client holds what its user believes to hold, as far as it can know."""
        core = client.core
        handle = self.sim.scheduler.core.clients.get(client.client_id)
        for lease, (holder, kind, name) in list(self.believed.items()):
            if holder is not client:
                continue
            if lease in calls_of(core).lost or not client.is_alive:
                self.sim.world.probes["objects: lost"] += client.is_alive
                # Where only connections and schedulers fail, all holders are back in time.
                is_kept = self.sim.plan.executes_once and not self._is_unexpected(client)
                assert not (client.is_alive and is_kept), f"{lease} was lost"
                del self.believed[lease]
            elif (
                core.is_linked
                and handle is not None
                and handle.peer is not None
                and not calls_of(core).restating
                and self.sim.scheduler.core.epoch == core.epoch
            ):
                record = objects_of(self.sim.scheduler.core).records.get((kind, name))
                holders: Any = ()
                if isinstance(record, LeaseRecord):
                    holders = record.holders
                assert Holder(handle, lease) in holders, f"{client!r} does not hold {kind} {name}"

    def _has_forgotten(self) -> bool:
        """Return whether a scheduler has lost its state, or that of a client."""
        sim = self.sim
        return bool(sim.n_restarts or sim.zombies or sim.scheduler.core.counters.clients_expired)

    def check_values(self) -> None:
        """Assert, at rest, that no value was lost, and that what was set holds."""
        known = marks_of(self.sim.scheduler.core).set
        for client in self.sim.clients:
            if client.is_alive:
                remembered = remembered_of(client.core)
                assert not remembered.stating, f"{client!r} has no answer for what it stated"
                gone = [x.what for n, x in remembered.settings.items() if n not in known]
                assert not gone, f"{client!r} was not told that others have set {gone}"
                self.sim.world.probes["objects: set, at rest"] += len(remembered.settings)
        if self.sim.n_restarts or self.sim.zombies:
            return
        objects = objects_of(self.sim.scheduler.core)
        there = {
            _plain(value.blob)
            for record in objects.records.values()
            if isinstance(record, QueueRecord)
            for value in record.items
        }
        # What a client has not acknowledged is given back when it is gone for good.
        there |= {
            _plain(value.blob)
            for calls in objects.calls.values()
            for call, reply in calls.answered.values()
            if call.kind == h.QUEUE
            for value in reply.values
        }
        lost = [value for value in self.put if value not in there and value not in self.taken]
        assert not lost, f"values were lost: {lost}"

    # -- the end ----------------------------------------------------------------------------------
    def finish(self) -> None:
        """Let all users release what they hold, and give up what they wait for."""
        for lease in list(self.believed):
            if lease.partition(":")[0] not in self.nested:
                self.release(lease)
        for watcher in list(self.waiting):
            if watcher.call.operation != "release" and watcher.call.name not in NESTED:
                self.give_up(watcher)

    def clean(self, client: ClientNode) -> None:
        """Let one user end all queues and the like."""
        for name in NAMES:
            self.call(client, h.QUEUE, name, "close", {})
            self.call(client, h.VARIABLE, name, "delete", {})
            self.call(client, h.EVENT, name, "clear", {})
            self.call(client, h.DATASET, "all", "delete", {"names": [name]})

    def check_at_rest(self) -> None:
        """Assert that all calls of users who are still there were answered."""
        left = [watcher.call for watcher in self.waiting if watcher.client.is_alive]
        assert not left, f"calls were not answered: {left}"
        holders = [
            record
            for record in objects_of(self.sim.scheduler.core).records.values()
            if isinstance(record, LeaseRecord) and record.holders
        ]
        assert not holders, f"locks are still held: {holders}"


def _plain(blob: Any) -> bytes:
    assert isinstance(blob, bytes)
    return blob
