"""The process of a user, who submits, shares, cancels and releases.

What the user sees of each future is compared with the serial interpreter's answer at the moment at
which it appears.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from weft.client.core.events import (
    Cancel,
    ClientClosing,
    Loaded,
    RetryFailed,
    Want,
    Watch,
    Withdraw,
)
from weft.client.core.retrying import can_retry
from weft.client.core.tasks import (
    NO_VALUE,
    SENT,
    FutureState,
    Watcher,
)
from weft.protocol.wire.failure import (
    ALLOTMENT_EXCEEDED,
    GANG_ENDED,
    MEMORY_EXCEEDED,
    TIMED_OUT,
)
from weft.protocol.wire.messages import Bye
from weft.protocol.wire.options import TaskOptions
from weft.protocol.wire.session import MISSED_HEARTBEATS
from weft.scheduler.core.recovery.records import recovery_of

from . import memory
from .client_process import ClientProcess
from .graphs import ACTOR, INDEX, Spec, unpacked

if TYPE_CHECKING:
    from .simulation import Simulation

FAILED = ("error", "cancelled", "lost")


class _Unheard(Watcher):
    """A caller that does not wait for the answer to a withdrawal."""

    ends_at_start = True

    def __init__(self) -> None:
        super().__init__(wants_data=False)

    def on_ready(self, items: list[Any]) -> None:
        pass


@dataclass(eq=False)
class Future:
    """One future that the user holds."""

    state: FutureState
    spec: Spec
    #: It, or one of its inputs, was not submitted by this client: it may be unknown.
    is_borrowed: bool
    seen: str = "pending"
    #: Of an actor: the attempt that made it, once the user has its handle.
    made_by: int = 0
    #: It came in the answer of an actor, which held it until this client did.
    came_in_answer: bool = False


class UserWatcher(Watcher):
    """A watcher that records its notifications, and checks that each comes once."""

    __slots__ = ("awaited", "node")

    def __init__(self, node: ClientNode, states: list[FutureState], wants_data: bool) -> None:
        super().__init__(wants_data)
        self.node = node
        self.awaited = list(states)

    def on_ready(self, items: list[Any]) -> None:
        """See `Watcher`."""
        for state in items:
            assert state in self.awaited, (
                f"{state!r} was told twice, or to somebody who never asked"
            )
            self.awaited.remove(state)
            # It may be pending again by now, because its only copy was lost at the same time; or it
            # was released, and raises that it was.
            if self.wants_data and state.phase != "gone":
                assert state.has_data or state.failure is not None, f"{state!r} has no data"


class ClientNode(ClientProcess):
    """The process of one user."""

    def __init__(self, sim: Simulation, name: str) -> None:
        self.futures: list[Future] = []
        #: Of tasks that need not end before the users let go of them.
        self.beside: list[FutureState] = []
        self.has_retried = False
        self.watchers: list[UserWatcher] = []
        super().__init__(sim, name)

    # -- the user ---------------------------------------------------------------------------------
    def act(self) -> None:
        """Do a random operation of a user."""
        rng, plan = self.world.rng, self.sim.plan
        specs = self.sim.graph.specs
        if not self.is_alive or self.sim.gangs.submit(self):
            return
        if self.futures and self.world.chance(plan.p_cancel):
            self._cancel()
        elif self.world.chance(plan.p_retry) and self._retry():
            return
        elif self.futures and self.world.chance(plan.p_release):
            self._release(rng.sample(self.futures, k=rng.randint(1, len(self.futures))))
        elif self.world.chance(plan.p_share) and self._share():
            return
        else:
            n = rng.choice([1, 3, 20, len(specs)])
            first = rng.randrange(len(specs))
            self.submit(
                specs[first : first + n]
                if rng.random() < 0.7
                else rng.sample(specs, k=min(n, len(specs)))
            )

    def submit(self, specs: list[Spec]) -> None:
        """Submit tasks, and those of their inputs that this client does not hold."""
        order: dict[Spec, None] = {}
        held = {future.spec: future for future in self.futures}
        stack = [(spec, False) for spec in reversed(specs)]
        again = self.world.chance(self.sim.plan.p_resubmit)
        while stack:
            spec, is_expanded = stack.pop()
            if spec in order:
                continue
            future = held.get(spec)
            if future is not None and (future.state.status not in FAILED or not again):
                continue
            if is_expanded:
                order[spec] = None
                continue
            stack.append((spec, True))
            stack.extend((dependency, False) for dependency in reversed(spec.dependencies))
        self._post_tasks(list(order))
        asked = dict.fromkeys(specs)
        new = self.futures[len(self.futures) - len(order) :] if order else []
        early = [future for future in new if future.spec not in asked]
        if early and self.world.chance(self.sim.plan.p_release_early):
            self.world.probes["released early"] += 1
            self._release(early)
        if self.world.chance(self.sim.plan.p_fetch):
            self.watch([future for future in new if future in self.futures], wants_data=True)
        elif self.world.chance(0.5):
            self.watch([future for future in new if future in self.futures], wants_data=False)

    def _post_tasks(self, specs: list[Spec]) -> None:
        for state, spec in zip(self.post_tasks(specs), specs, strict=True):
            # The failure of a future whose key was submitted again does not apply to that key.
            borrowed = any(
                f.is_borrowed or f.state.status in FAILED
                for f in self.futures
                if f.spec in spec.dependencies
            )
            self.futures.append(Future(state, spec, borrowed))
            if borrowed:
                self.sim.borrowing[spec.key] = None

    def hold_gang(self, states: list[FutureState], specs: list[Spec]) -> None:
        """Hold the futures of a gang that was submitted."""
        new = [Future(state, spec, False) for state, spec in zip(states, specs, strict=True)]
        self.futures += new
        self.watch(new, wants_data=self.world.chance(0.5))

    def conditioned(self, specs: list[Spec], options: TaskOptions) -> TaskOptions:
        """See `ClientProcess`."""
        if specs[0].gang:
            return options
        options = self.sim.recurring.timed(self.sim, specs, options)
        options = self.sim.arrays.ranged(specs, options)
        if not (options.cron or options.array):
            options = self.sim.conditions.add(self, specs, options)
        return self.sim.journal.detach(specs, self.sim.queues.put(options))

    def _share(self) -> bool:
        """Take over a future of another client."""
        others = [c for c in self.sim.clients if c is not self and c.is_alive and c.futures]
        if not others:
            return False
        rng = self.world.rng
        donor = rng.choice(others)
        for future in rng.sample(donor.futures, k=min(len(donor.futures), rng.choice([1, 5]))):
            if future.spec.gang:
                continue
            self.world.probes["shared"] += 1
            if self.sim.scheduler.known(future.spec.key) is None:
                # It may be asked for before it is submitted.
                self.sim.released[future.spec.key] = None
            state = self.table.find_or_make(future.spec.key)
            mine = Future(state, future.spec, True)
            self.futures.append(mine)
            self.post(Want([state]))
            if rng.random() < 0.7:
                self.watch([mine], wants_data=True)
        return True

    def _cancel(self) -> None:
        rng = self.world.rng
        futures = rng.sample(self.futures, k=min(len(self.futures), rng.choice([1, 3])))
        self.world.probes["cancel"] += 1
        force = self.world.chance(self.sim.plan.p_force)
        for future in futures:
            state = future.state
            # Large data may be lost, and be on its way again, when the core handles this. What has
            # failed may be pending again by then: a retry may be posted.
            is_open = state.failure is None or self.is_posted(RetryFailed)
            if is_open and not state.has_data:
                self.sim.gangs.note_cancelled(future.spec)
                self.sim.cancelled[future.spec.key] = None
                if force:
                    self.sim.forced[future.spec.key] = None
        states = [future.state for future in futures]
        if not force and rng.random() < 0.5:
            self.world.probes["withdraw"] += 1
            self.post(Withdraw(_Unheard(), states, "user"))
        else:
            self.post(Cancel(states, force=force, reason="user", running=rng.random() < 0.7))

    def _retry(self) -> bool:
        """Have failed futures run again; return whether there were any."""
        failed = [future for future in self.futures if can_retry(future.state)]
        if not failed:
            return False
        self.world.probes["retry"] += 1
        self.has_retried = True  # from now on inputs of these may be pending again, too
        self.post(RetryFailed([future.state for future in failed]))
        return True

    def _release(self, futures: list[Future]) -> None:
        for future in self.sim.gangs.whole(futures, self.futures):
            self.futures.remove(future)
            self.sim.released[future.spec.key] = None
            self.post(future.state)

    def watch(self, futures: list[Future], *, wants_data: bool) -> None:
        """Wait for futures. Those of indexes are not read: no user has one."""
        reads: dict[bool, dict[FutureState, None]] = {True: {}, False: {}}
        for future in futures:
            reads[wants_data and future.spec.function != INDEX][future.state] = None
        for is_read, states in reads.items():
            if states:
                watcher = UserWatcher(self, list(states), is_read)
                self.watchers.append(watcher)
                self.post(Watch(watcher, list(states)))

    # -- the process ------------------------------------------------------------------------------
    def crash(self) -> None:
        """End the process at once: its lease has to run out."""
        if self.is_alive:
            self.world.note(f"{self!r} crashes")
            self._end()
            self.session.abort()

    def leave(self) -> None:
        """Close the client in order."""
        if not self.is_alive:
            return
        self.world.note(f"{self!r} leaves")
        self.flush_operations()
        self.handle(ClientClosing())
        self._end()
        self.session.leave([Bye(reason="closed")])

    def _end(self) -> None:
        self.is_alive = False
        for future in self.futures:
            self.sim.released[future.spec.key] = None
        self.futures = []
        self.actor_connections.close()

    def release_all(self) -> None:
        """Release every future."""
        self._release(list(self.futures))
        for state in self.beside:
            self.post(state)

    # -- checks -----------------------------------------------------------------------------------
    def check(self) -> None:
        """Validate the core, and the user's view of each future."""
        super().check()
        for future in self.futures:
            state = future.state
            status = state.status
            if status == future.seen and state.blob is None:
                continue
            if future.seen in FAILED and not self.has_retried:
                assert status == future.seen, f"{state!r} was {future.seen} before"
            if state.blob is not None:
                value = unpacked(state.blob)
                assert value == future.spec.value, f"{state!r} has a wrong value"
                # As if the user had read it: from now on it does not change. As `future.load` does.
                if state.value is NO_VALUE and future.spec.function != ACTOR:
                    state.value = value
                    if state.spec is not None:
                        state.blob = None
                    elif self.world.chance(0.5):
                        self.post(Loaded(state))
            elif future.seen == "finished" and status != "finished":
                assert state.value is not None
                assert not state.has_data, f"{state!r} had data and is {status}"
            if status in FAILED and future.seen != status:
                self._check_failure(future)
            if future.spec.function == ACTOR and status == "finished":
                self._check_actor(future)
            future.seen = status

    def _check_actor(self, future: Future) -> None:
        """Assert that an actor whose handle the user has is not made again behind it.

        A client that is cut off cannot know that the actor was lost, and another one may have made
        a new one meanwhile. So this holds as soon as the client has read what the scheduler sent.
        """
        sim, key = self.sim, future.spec.key
        task = sim.scheduler.core.tasks.get(key)
        if task is None or task.state != "memory" or recovery_of(sim.scheduler.core).n_ended:
            return
        if key in sim.released or key in sim.cancelled or self.has_retried:
            return  # its key may be that of another actor
        if not self._has_read_all():
            self.world.probes["actor held by a client that is behind"] += 1
            return
        self.world.probes["actor held"] += 1
        future.made_by = future.made_by or self.core.made.get(future.state, task.attempt)
        assert future.made_by == task.attempt, f"{future.state!r} was made again"

    def _has_read_all(self) -> bool:
        """Return whether the client is connected, and nothing is on its way to it."""
        link = self.session.link
        if link is None or link.is_broken or link.sides[0].incoming or not self.core.is_linked:
            return False
        return self.sim.scheduler.has_sent_all(link, self.client_id)

    def _check_failure(self, future: Future) -> None:
        """Assert that there was a reason for this failure."""
        state, spec, sim = future.state, future.spec, self.sim
        assert state.failure is not None
        failure = state.failure
        kind, culprit = failure[0], failure[1]
        self.world.probes[f"failure {kind}"] += 1
        why = f"{state!r} failed with {state.failure}: there was no reason for it"
        if kind == GANG_ENDED:
            assert spec.gang, why
            assert culprit in spec.ancestors, why
            failure = [state.failure[4], culprit, *state.failure[5:]]
            kind = failure[0]
        if kind == "exception":
            excused = culprit in sim.excused and culprit in spec.ancestors
            assert culprit in spec.culprits or excused, why
        elif kind == TIMED_OUT:
            assert culprit in spec.ancestors, why
            assert culprit in sim.timed_out, why
        elif kind == ALLOTMENT_EXCEEDED:
            assert sim.categories.has_failed(spec, failure), why
        elif kind == "worker-died":
            assert culprit in spec.ancestors, why
            assert sim.died.get(culprit, 0) > sim.plan.allowed_deaths, why
        elif kind == "cancelled":
            assert any(key in sim.cancelled for key in spec.ancestors), why
        elif kind == "user-limit" and failure[3] == "user-running":
            assert len(spec.ancestors) == int(spec.gang[2]) > failure[4], why
            self.world.probes["gang beyond a limit"] += 1
        elif kind == "user-limit":
            assert sim.plan.limits["scheduler.user_tasks"], why
            sim.beyond_limits[culprit] = None
        elif kind == "no-worker":
            assert sim.no_worker_limit_s, why
            assert culprit in spec.ancestors, why
        elif kind == "unrecorded":
            assert culprit in sim.journal.detached, why
            assert culprit in spec.ancestors, why
        elif kind == MEMORY_EXCEEDED:
            assert culprit in spec.ancestors, why
            assert memory.has_reason(sim, failure[2]), why
        elif kind == "actor-lost":
            assert culprit in spec.actors, why
        elif kind == "unreachable":
            assert self.client_id in sim.refused, why
            assert sim.nbytes(culprit) > sim.plan.limits["scheduler.relayed"], why
        elif kind == "data-lost" and sim.gangs.has_lost(spec, failure):
            self.world.probes["gang lost"] += 1
        elif kind == "data-lost":
            # Scattered data that has given way in a full memory cannot be made again.
            gave_way = culprit in sim.exceeded and spec.reads_scattered
            keeps_all = sim.plan.executes_once and not sim.n_restarts
            is_kept = future.came_in_answer and spec.key not in sim.actor_users.may_be_gone
            is_kept = is_kept and culprit not in sim.beyond_limits
            assert gave_way or not (is_kept and keeps_all), why
            if "cannot reach each other" in failure[2]:
                # They were refused repeatedly, and for longer than a death goes unnoticed.
                assert any(worker_id.startswith("worker") for worker_id in sim.refused), why
                assert self.world.now > sim.plan.heartbeat * MISSED_HEARTBEATS, why
            else:
                released = any(key in sim.released for key in spec.ancestors)
                # A scheduler at which the lease ended does not have finished tasks.
                forgot = sim.scheduler.core.counters.clients_expired
                borrowed = future.is_borrowed or any(
                    f.is_borrowed and f.spec.key in spec.ancestors for f in self.futures
                )
                # A task that another client submitted on such an input has failed for all.
                borrowed = borrowed or any(key in sim.borrowing for key in spec.ancestors)
                # An input that another client cancelled by force may be gone when it is read.
                forced = any(key in sim.forced for key in spec.ancestors)
                # A client submits no call again that has failed for it, so a new scheduler has no
                # more of it than a failure that a worker has kept.
                failed = recovery_of(sim.scheduler.core).n_ended and any(
                    f.state.status in FAILED and not f.is_borrowed and f.spec.key in spec.ancestors
                    for client in sim.clients
                    for f in client.futures
                    if client is not self
                )
                # Scattered data is gone with its last copy, also when its futures were released.
                gone = spec.reads_scattered and (released or not sim.plan.executes_once)
                if "it was scattered" in failure[2]:
                    self.world.probes["scattered data lost"] += 1
                # A new scheduler knows no failure, and the client no recipe of what has failed.
                retried = any(client.has_retried for client in sim.clients)
                retried = retried and self.world.probes["client meets a new scheduler"] > 0
                # What has finished before an input was cancelled cannot be computed again.
                cut = any(key in sim.cancelled for key in spec.ancestors)
                cut = cut and recovery_of(sim.scheduler.core).n_ended
                # Nor can what has finished before an input failed: an actor that was lost later.
                past = sim.graph.by_key[culprit].ancestors
                cut = cut or bool(
                    recovery_of(sim.scheduler.core).n_ended
                    and any(f.seen in FAILED and f.spec.key in past for f in self.futures)
                )
                # An input may be cancelled while a call of it is on its way.
                overtaken = culprit in sim.cancelled and "cancelled before" in failure[2]
                # A borrower has no recipe, and the owner may be at another scheduler.
                passed_on = future.is_borrowed and recovery_of(sim.scheduler.core).n_ended
                lent = borrowed and (released or failed)
                # An actor that is lost with its worker is none that a new scheduler has known.
                unknown = culprit in spec.actors and recovery_of(sim.scheduler.core).n_ended
                reasons = (gone, gave_way, forgot, forced, retried, cut, overtaken, passed_on, lent)
                # A call beyond a limit of its user was never a task.
                refused = any(key in sim.beyond_limits for key in spec.ancestors)
                reasons = (*reasons, unknown, refused)
                assert any(reasons), why
        else:
            raise AssertionError(why)

    def wants(self) -> list[str]:
        """Return the keys that the scheduler should know this client to want."""
        return [key for key, state in self.table.states.items() if state.phase == SENT]
