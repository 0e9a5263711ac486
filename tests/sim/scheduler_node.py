"""The scheduler process: the real core, with a shell that follows `scheduler/server.py`.

Watches over the core from outside as well: no two starts have one epoch, attempts are never given
out twice, also by two schedulers, a completion counts at most once, and an exception is retried
exactly as often as it may be.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from random import Random
from typing import TYPE_CHECKING, Any

from weft.protocol.wire.failure import RESCHEDULE
from weft.protocol.wire.message import Message
from weft.protocol.wire.messages import (
    Ask,
    AssignTasks,
    AttemptsErred,
    AttemptsExceeded,
    AttemptsFinished,
    AttemptsOverdue,
    AttemptsReturned,
    EndWorkers,
    InventoryUnfinished,
    KeysMissing,
    RegisterWorker,
    Welcome,
)
from weft.protocol.wire.roles import ROLE_LEVELS, Role
from weft.scheduler.core.actions import CloseConnection, LogLine
from weft.scheduler.core.blocking.failing import failing_hosts_of
from weft.scheduler.core.conditions.no_worker_limit import no_worker_limit_of
from weft.scheduler.core.events import Event, PeerClosed, PeerConnected, PeerSent, SchedulerTick
from weft.scheduler.core.features import FEATURES
from weft.scheduler.core.invariants.validate import validate
from weft.scheduler.core.journal.entries import ReadEnds, ReadJobs, Report, WriteJournal
from weft.scheduler.core.journal.feature import on_retry_job
from weft.scheduler.core.journal.forgetting import on_forget
from weft.scheduler.core.members.epochs import GiveWay, KeepMembers, StartOver, next_epoch
from weft.scheduler.core.moves.transitions import ACTIVE
from weft.scheduler.core.records.peers import WorkerHandle
from weft.scheduler.core.records.presence import Members
from weft.scheduler.core.records.settings import KernelSettings
from weft.scheduler.core.records.tasks import SchedulerTask
from weft.scheduler.core.recovery.records import recovery_of
from weft.scheduler.core.state import SchedulerState
from weft.scheduler.core.upkeep.turns import Turns
from weft.scheduler.core.upkeep.user_limits import user_limits_of

from .links import KEEP_ALIVE, Link
from .memory import Watched
from .plugins import check_unused

if TYPE_CHECKING:
    from .simulation import Simulation

#: Tasks up to which everything is checked after each event; of more, only now and then.
SMALL = 30
#: So many count in addition; `--sparse` changes it.
EXTRA = 0
#: In the reason for which a client in tasks is refused until its worker is registered.
NOT_NOW = "in the tasks of a worker that is not registered now"
#: What a scheduler's clock shows at the start of a run, and the step by which it may be set back.
START_NS = 10**18
STEP_BACK_NS = 3600 * 10**9


@dataclass
class Record:
    """What the starts of a scheduler keep for each other, as in a state directory."""

    epoch: int = 0
    members: Members = field(default_factory=Members)

    def clear(self) -> None:
        """Lose it: the next scheduler knows nothing."""
        self.epoch, self.members = 0, Members()


class SchedulerNode:
    """One start of the scheduler."""

    def __init__(self, sim: Simulation, number: int, record: Record) -> None:
        self.sim = sim
        self.world = world = sim.world
        self.plan = plan = sim.plan
        self.number = number
        self.record = record
        self.is_alive = True
        self.is_frozen = False
        self.gave_way = False
        self._deferred: list[tuple[Any, tuple[Any, ...]]] = []
        clock_ns = START_NS + int(world.now * 1e9) + number
        if number > 1 and world.chance(plan.p_clock_back):
            world.probes["clock set back"] += 1
            clock_ns -= STEP_BACK_NS
        self._clock_ns = clock_ns
        if not world.chance(plan.p_recorded):
            record.clear()
        self.core = self._start(next_epoch(clock_ns, record.epoch))
        self._links: dict[int, Link] = {}
        self._peers: dict[Link, int] = {}
        self._next_peer = 1
        #: {peer: None} of workers that had had nothing to do when they came to this start, since
        #: it waits for peers: it may find out late that it follows another one
        self._unused: dict[int, None] = {}
        #: {whether what there is to be sent is work: None} for which a flush is under way
        self._flushes: dict[bool, None] = {}
        #: Attempts that were in the boxes when it began to wait for the peers of an earlier one.
        self._early: set[int] = set()
        self._turns = Turns(plan.limits["scheduler.slice"])
        #: {whether it keeps the run going: None} of the turns that are due; one that does is due
        #: while anything but signs of life waits
        self._scheduled_turns: dict[bool, None] = {}
        self._n_unchecked = 0
        #: when the next tick is due; infinite = none is
        self._alarm_at = inf
        self._set_alarm()
        self._read_journal()

    def _read_journal(self) -> None:
        if self.sim.journal.is_there:
            self._handle(self.sim.journal.read(self))
            self.sim.journal.check_users(self.core)
        if self.sim.is_healed:
            self.sim.queues.resume_all(self)

    def report(self, core: SchedulerState, report: Report) -> None:
        """Let the journal report to the core that had it written."""
        if core is self.core:  # else it began again meanwhile
            self._handle(SchedulerTick(journal=[report]))

    def forget_jobs(self, keys: list[str]) -> None:
        """Let a user forget jobs."""
        on_forget(self.core, 0, Ask(request=0, name="forget_jobs", arguments={"keys": keys}))
        self._handle(SchedulerTick())

    def retry_job(self, key: str) -> None:
        """Let a user have a job run again."""
        on_retry_job(self.core, 0, Ask(request=0, name="retry_job", arguments={"key": key}))
        self._handle(SchedulerTick())

    def ask_rows(self, name: str, key: str, rows: list[str]) -> None:
        """Let a user ask about rows of an array, who has no connection that an answer takes."""
        follow = self.core.features.orders[name].follow
        follow(self.core, 0, Ask(request=0, name=name, arguments={"key": key, "rows": rows}))
        self._handle(SchedulerTick())

    def _start(self, epoch: int) -> SchedulerState:
        plan, record = self.plan, self.record
        assert epoch not in self.sim.epochs, f"two starts of the scheduler have epoch {epoch}"
        self.sim.epochs[epoch] = None
        record.epoch = epoch
        settings = KernelSettings(
            client_lease_s=plan.lease,
            heartbeat_s=plan.heartbeat,
            allowed_deaths=plan.allowed_deaths,
            max_idle_functions=plan.limits["scheduler.idle_functions"],
            away_s=plan.away,
        )
        core = SchedulerState(epoch, settings, features=FEATURES, expected=record.members)
        user_limits_of(core).max_rows = plan.limits["scheduler.user_tasks"]
        # From a source of chance of its own.
        rng = Random(f"running limit of {self.sim.world.seed}")
        user_limits_of(core).max_running = rng.choice([0, 0, 0, 0, 1, 3, 10])
        self.sim.queues.limit_failures(failing_hosts_of(core))
        no_worker_limit_of(core).seconds = self.sim.no_worker_limit_s
        self._watched = Watched(self.sim, core)
        return core

    # -- the process ------------------------------------------------------------------------------
    def when_awake(self, what: Any, *args: Any) -> bool:
        """Put an event off while the process is stopped. False = it is dead or asleep."""
        if self.is_alive and self.is_frozen:
            self._deferred.append((what, args))
        return self.is_alive and not self.is_frozen

    def freeze(self, seconds: float) -> None:
        """Stop the process for a while (SIGSTOP)."""
        self.is_frozen = True
        self.world.at(seconds, self.thaw)

    def thaw(self) -> None:
        """Go on, first with the events that came meanwhile, in order (SIGCONT)."""
        self.is_frozen = False
        deferred, self._deferred = self._deferred, []
        for what, args in deferred:
            what(*args)

    def __repr__(self) -> str:
        return f"scheduler-{self.number}"

    @property
    def hears_the_dead(self) -> bool:
        """Messages may still come from a connection that broke: even a registration."""
        return any(link.is_broken for link in self._links.values())

    # -- connections ------------------------------------------------------------------------------
    def accept(self, link: Link, role: Role, user: str) -> None:
        """Handle the connection of a peer."""
        peer = self._next_peer
        self._next_peer = peer + 1
        self._links[peer] = link
        self._peers[link] = peer
        self._handle(PeerConnected(peer, role, ROLE_LEVELS[role], user))

    def on_messages(self, link: Link, messages: list[Message]) -> None:
        """See `End`."""
        if not self.when_awake(self.on_messages, link, messages):
            return
        peer = self._peers.get(link)
        if peer is not None:
            self.world.note(f"{self!r} <- {peer}", messages)
            role = self.core.roles.get(peer, Role.VIEWER)
            is_first = not self._turns
            if self._turns.passes(peer, role, messages, self.world.now):
                self._schedule_turn(is_work=False)
                self._receive(peer, messages)
                return
            self.world.probes["too much for one look at the sockets"] += is_first
            self._turns.add(peer, role, messages, self.world.now)
            is_work = not all(isinstance(message, KEEP_ALIVE) for message in messages)
            self._schedule_turn(is_work=is_work)

    def _schedule_turn(self, *, is_work: bool) -> None:
        """Let a turn begin a little later: frames that arrive until then came in the same look."""
        if is_work not in self._scheduled_turns:
            self._scheduled_turns[is_work] = None
            delay = self.world.rng.random() * self.plan.flush_delay
            self.world.at(delay, self._turn, is_work, is_work=is_work)

    def _turn(self, is_work: bool) -> None:
        """Handle one slice; other waiting rows have theirs after another look at the sockets."""
        if self.is_alive and not self.when_awake(self._turn, is_work):
            return
        del self._scheduled_turns[is_work]
        turns = self._turns
        turns.validate()
        scale = turns.begin(self.world.now)
        taken = turns.take(scale) if self.is_alive else None
        if taken is None:
            return
        peer, messages, _ = taken
        if not messages:
            self._handle(PeerClosed(peer))
        else:
            self._receive(peer, messages)
        if turns:
            self.world.probes["slice left for later"] += 1
            self._schedule_turn(is_work=is_work)

    def _receive(self, peer: int, messages: list[Message]) -> None:
        n_before = self.core.counters.tasks_completed
        current = self._current(peer, messages)
        raised = self._raised(peer, messages)
        self._handle(PeerSent(peer, messages))
        hello = messages[0]
        is_unused = isinstance(hello, RegisterWorker) and hello.is_unused
        if is_unused and hello.last_epoch != self.core.epoch:
            self._unused[peer] = None
            check_unused(self.core, [peer])
        n_completed = self.core.counters.tasks_completed - n_before
        for task, n_exceptions in raised:
            self._check_retry(task, n_exceptions)
        # A completion is applied at most once, and only that of the current attempt.
        assert n_completed <= current, f"{n_completed} completions of {current} current attempts"

    def _current(self, peer: int, messages: list[Message]) -> int:
        ws = self.core.workers.get(peer)
        if ws is None:
            return 0
        listed = {  # the scheduler may adopt these before it reads that they have finished
            attempt: None
            for message in messages
            if isinstance(message, InventoryUnfinished)
            for attempt in message.attempts
        }
        return len(
            {
                attempt: None
                for message in messages
                if isinstance(message, AttemptsFinished)
                for attempt in message.attempts
                if attempt in ws.processing or attempt in listed
            }
        )

    def _raised(self, peer: int, messages: list[Message]) -> list[tuple[SchedulerTask, int]]:
        """Return the tasks whose current attempts are reported as failed, and how often before."""
        endings = (AttemptsExceeded, AttemptsReturned, KeysMissing)
        if any(isinstance(message, endings) for message in messages):
            return []  # these may have ended the attempt by the time that its failure is read
        ws = self.core.workers.get(peer)
        tasks = {
            ws.processing[attempt]: None
            for message in messages
            if ws is not None and isinstance(message, AttemptsErred)
            for attempt, failure in zip(message.attempts, message.failures, strict=True)
            if attempt in ws.processing and failure[0] != RESCHEDULE
        }
        tasks |= {
            ws.processing[attempt]: None
            for message in messages
            if ws is not None and isinstance(message, AttemptsOverdue)
            for attempt in message.attempts
            if attempt in ws.processing
        }
        # Those of gangs count later, or not at all if another member was lost. Of those that run
        # twice none counts: the other attempt goes on.
        twice = {task for _, task in recovery_of(self.core).twins.values()}
        counted = [t for t in tasks if not t.group.options.gang and t not in twice]
        return [(task, self.core.n_exceptions.get(task, 0)) for task in counted]

    def _check_retry(self, task: SchedulerTask, n_before: int) -> None:
        """An exception below the limit is counted and the task lives on; one at the limit ends it.

        Unless the task is over for another reason: it is not needed any more, or an input failed.
        """
        n_now = self.core.n_exceptions.get(task, 0)
        if n_before >= task.group.options.retries:
            assert task.state not in ACTIVE, f"{task!r} is retried more often than it may be"
            # A failure before it in the same message may have taken away the need for it.
            is_unneeded = task.state == "released" and n_now == n_before
            assert n_now == 0 or is_unneeded, (
                f"{task!r} has ended, and {n_now} of its exceptions still count"
            )
        elif task.state in ACTIVE:
            assert n_now == n_before + 1, f"{task!r}: an exception is not counted"

    def session_of(self, link: Link | None) -> WorkerHandle | None:
        """Return the scheduler's record of the worker of a connection; None = there is none."""
        peer = None if link is None else self._peers.get(link)
        return None if peer is None else self.core.workers.get(peer)

    def has_sent_all(self, link: Link, client_id: str) -> bool:
        """Return whether a client is registered over this connection, and no message waits."""
        peer, client = self._peers.get(link), self.core.clients.get(client_id)
        is_current = peer is not None and client is not None and client.peer == peer
        return is_current and peer not in self.core.outboxes

    def on_closed(self, link: Link) -> None:
        """See `End`."""
        if not self.when_awake(self.on_closed, link):
            return
        peer = self._peers.pop(link, None)
        if peer is not None:
            del self._links[peer]
            self._turns.close(peer)
            self._schedule_turn(is_work=True)

    def kill(self) -> None:
        """End the process; its state is lost."""
        self.is_alive = False
        self._drop_links()

    def _drop_links(self) -> None:
        for link in list(self._links.values()):
            link.break_()
        for peer in list(self._links):
            self._turns.drop(peer)
        self._links.clear()
        self._peers.clear()

    # -- the core ---------------------------------------------------------------------------------
    def _set_alarm(self) -> None:
        """Let a tick come when the core's next deadline is due, and a little later."""
        due = max(self.core.next_deadline, self.world.now)
        if due < self._alarm_at:
            self._alarm_at = due + self.world.rng.random() * self.plan.lateness
            delay = self._alarm_at - self.world.now
            self.world.at(delay, self._on_tick, self._alarm_at, is_work=False)

    def _on_tick(self, alarm_at: float) -> None:
        if alarm_at == self._alarm_at and self.when_awake(self._on_tick, alarm_at):
            self._alarm_at = inf
            self._handle(SchedulerTick(unread=self._turns.waiting()))

    def _handle(self, event: Event) -> None:
        world = self.world
        if not isinstance(event, (PeerSent, SchedulerTick)):
            world.note(f"{self!r} {event}")
        was_awaiting = self.core.awaits_peers
        self.core.handle(event, world.now)
        if self.core.awaits_peers and not was_awaiting:
            # Only now it learns that it follows another one. What is in boxes was assigned before.
            boxes = self.core.outboxes.values()
            waiting = [x for box in boxes for x in box if isinstance(x, AssignTasks)]
            self._early = {attempt for x in waiting for attempt in x.attempts}
        self._watched.after_event()
        self.sim.categories.note_stragglers(self.core)
        self._set_alarm()
        world.touched[self] = None
        if self.core.before or self.core.outboxes or self.core.after:
            if self.plan.flush_delay == 0.0:
                self._flush()
            elif True not in self._flushes:
                messages = [message for box in self.core.outboxes.values() for message in box]
                is_work = not all(isinstance(message, KEEP_ALIVE) for message in messages)
                if is_work or not self._flushes:
                    self._flushes[is_work] = None
                    delay = world.rng.random() * self.plan.flush_delay
                    world.at(delay, self._flush, is_work=is_work)

    def _flush(self) -> None:
        self._flushes.clear()
        if not self.when_awake(self._flush):
            return
        before, self.core.before = self.core.before, []
        for action in before:
            self.world.note(f"{self!r} {action}")
            if isinstance(action, StartOver):
                self.world.probes["started over"] += 1
                self._drop_links()
                self.core = self._start(next_epoch(self._clock_ns, self.core.epoch, action.seen))
                self._alarm_at = inf
                self._set_alarm()
                self._read_journal()
                return
            assert isinstance(action, GiveWay)
            self.world.probes["gave way"] += 1
            self.gave_way = True
            self.kill()
            return
        outboxes = self.core.outboxes
        for peer in list(outboxes):
            messages = outboxes.pop(peer)
            self._note_ends(messages)
            link = self._links.get(peer)
            if link is None:
                continue
            if isinstance(messages[0], Welcome):
                link.set_numbers(1, messages[0].epoch, messages[0].session)
            self.world.note(f"{self!r} -> {peer}", messages)
            self._watch(messages)
            self._watched.sent(peer, messages)
            link.send(1, messages)
        after, self.core.after = self.core.after, []
        for action in after:
            if isinstance(action, CloseConnection):
                self.world.note(f"{self!r} closes", action)
                self._turns.drop(action.peer)
                link = self._links.pop(action.peer, None)
                # One end of a broken connection may count the other as silent before that.
                is_expected = (link is not None and link.is_broken) or NOT_NOW in action.reason
                if action.is_error and not is_expected:
                    raise AssertionError(f"the scheduler refuses a peer of ours: {action.reason}")
                if link is not None:
                    del self._peers[link]
                    link.close(1)
            elif isinstance(action, WriteJournal):
                self.sim.journal.write(self, action)
            elif isinstance(action, ReadJobs):
                self.sim.journal.read_again(self, self.core, action)
            elif isinstance(action, ReadEnds):
                self.sim.journal.read_ends(self, self.core, action)
            elif isinstance(action, KeepMembers):
                self.record.members = action.members
            elif isinstance(action, LogLine):
                self.world.note(f"{self!r} log", action.text)
                self.world.probes["host blocked by itself"] += " is blocked for " in action.text
                self._watched.logged(action.text)

    def _note_ends(self, messages: list[Message]) -> None:
        """Count ends of processes that it orders: they may count against tasks before they come."""
        orders = [message for message in messages if isinstance(message, EndWorkers)]
        ended = {worker_id for order in orders for worker_id in order.worker_ids}
        for ws in self.core.workers.values() if ended else ():
            if ws.worker_id in ended:
                for attempt in (*ws.processing, *ws.zombies):
                    key = self.sim.executed.get(attempt)
                    if key is not None:
                        self.sim.died[key] = self.sim.died.get(key, 0) + 1

    def _watch(self, messages: list[Message]) -> None:
        for message in messages:
            if isinstance(message, AssignTasks):
                early = not self.core.awaits_peers or self._early.issuperset(message.attempts)
                assert early, "tasks are assigned before the barrier"
                assigned = self.sim.assigned
                for key, attempt in zip(message.keys, message.attempts, strict=True):
                    assert attempt not in assigned, f"attempt {attempt} was given out twice"
                    assigned[attempt] = key
                    self.world.probes["recurring: run assigned"] += "@" in key
                    if "/" in key:
                        self.sim.arrays.check_assigned(self, key)

    # -- checks -----------------------------------------------------------------------------------
    def check(self) -> None:
        """Validate the core: all of it if the graph is small, else a part each time."""
        if self.core.awaits_peers:
            check_unused(self.core, self._unused)
        else:  # workers that are there need not wait for a new plugin
            self._unused.clear()
        self._n_unchecked += 1
        if EXTRA + len(self.core.tasks) <= SMALL * self._n_unchecked:
            self._n_unchecked = 0
            validate(self.core)

    def story(self, key: str) -> list[str]:
        """Return the story that the core keeps of a key."""
        return self.core.story.of(key)

    def known(self, key: str) -> Any:
        """Return the core's record of a key."""
        return self.core.tasks.get(key)
