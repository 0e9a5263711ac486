"""One run: real cores in a simulated world, first with faults, then healed, then empty.

Three phases. *Trouble*: users work, faults come at the plan's rates; no event may break an
invariant. *Healing*: no more faults, missing processes are added; every wanted task must come
to its end. *Leaving*: all clients leave; no task or value may remain anywhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from weft.protocol.wire.messages import GetData, GetPromised, KeysData
from weft.protocol.wire.roles import Role
from weft.protocol.wire.session import MISSED_HEARTBEATS
from weft.scheduler.core.data.copies import copies_of
from weft.scheduler.core.memory.records import memory_of
from weft.worker.core.tasks import WorkerTask

from . import checks, copies, following, limits, memory, pausing, plugins, reading, retiring
from .actor_calls import ActorUsers
from .arrays import SimulatedArrays
from .categories import SimulatedCategories
from .client_node import FAILED, ClientNode
from .conditions import Conditions
from .coordination import ObjectUsers
from .disks import Disks
from .ends import SimulatedEnds
from .executions import Executions
from .gangs import SimulatedGangs
from .graphs import Graph, Spec
from .journal import SimulatedJournal
from .links import End, Link, copied
from .parts import Parts
from .plan import Plan
from .queues import Queues
from .recurring import Recurring
from .scheduler_node import Record, SchedulerNode
from .session import SimulatedSession
from .spilling import Spills
from .supervisor_node import SupervisorNode
from .worker_node import WorkerNode
from .world import World

#: Virtual seconds in which all must end without faults; as much again per second of a task.
PATIENCE_S = 400.0
#: With nothing under way, only timers are left to go on: they get this long.
SILENCE_S = 45.0
MAX_EVENTS = 400_000
#: Workers that together may run every task.
EVERYTHING = {"gpu": 2.0, "mem": 1.5}
ABLE = ("w0", "w1", "nobody", "w9")


class SimulationFailed(AssertionError):
    """Raised when a run fails. The text has the command that repeats it."""


class Simulation:
    """Everything of one run."""

    def __init__(self, seed: int, *, traced: bool = False, sessions: bool = False) -> None:
        self.world = World(seed, traced=traced)
        draw = Plan.draw_sessions if sessions else Plan.draw
        self.plan = draw(self.world.rng)
        self.graph = Graph(self.plan, self.world.rng)
        self.limits = memory.draw(Random(f"memory of {seed}"), self.plan, self.graph)
        self.parts = Parts(seed, self.plan, self.graph)
        self.disks = Disks(seed, self.plan)
        self.spills = Spills(seed, self.plan, self.limits)
        self.pausing = pausing.draw(Random(f"pauses of {seed}"))
        self.queues = Queues(seed)
        #: The scheduler lets no task wait longer for a worker that could run it; 0 = it does.
        self.no_worker_limit_s = Random(f"no-worker limit of {seed}").choice([0.0] * 7 + [10.0])
        self.conditions = Conditions(seed, self)
        self.gangs = SimulatedGangs(seed, self)
        self.categories = SimulatedCategories(seed, self)
        self.ends = SimulatedEnds(seed, self)
        self.recurring = Recurring(seed, self.plan, self.graph)
        self.arrays = SimulatedArrays(seed, self)
        self.journal = SimulatedJournal(seed, self)
        #: {key: None} of tasks that failed because the memory was exhausted
        self.exceeded: dict[str, None] = {}
        self.workers: dict[str, WorkerNode] = {}
        self.by_address: dict[str, WorkerNode] = {}
        self.supervisors: list[SupervisorNode] = []
        self.clients: list[ClientNode] = []
        self._links: list[tuple[SimulatedSession, Link]] = []
        self._n_ids = 0
        self.n_restarts = 0
        self.is_healed = False
        #: Epochs of all starts of the scheduler.
        self.epochs: dict[int, None] = {}
        #: {attempt: key} of all that any scheduler assigned.
        self.assigned: dict[int, str] = {}
        #: {attempt: key} of all executions that were begun.
        self.executed: dict[int, str] = {}
        #: {key: {attempt: where, and in which session}} of those that have not ended.
        self._executing: dict[str, dict[int, tuple[WorkerNode, Link | None]]] = {}
        self.executions = Executions(self)
        #: {key: executions that raised}
        self.n_raised: dict[str, int] = {}
        #: {key: {attempt: None}} of executions that were reported to take too long
        self.timed_out: dict[str, dict[int, None]] = {}
        #: {key: deaths of workers that executed it}
        self.died: dict[str, int] = {}
        #: {key: why it raised} of what has read a failure, or whose wait failed; and how often
        self.excused: dict[str, str] = {}
        self.n_excused: Counter[str] = Counter()
        #: Keys of calls that were refused since their user had too many.
        self.beyond_limits: dict[str, None] = {}
        #: Keys that some client ever cancelled, cancelled for all, released.
        self.cancelled: dict[str, None] = {}
        self.forced: dict[str, None] = {}
        self.released: dict[str, None] = {}
        #: Keys that a client submitted on inputs that it had not submitted itself.
        self.borrowing: dict[str, None] = {}
        #: Processes that were refused by a worker's data port.
        self.refused: dict[str, None] = {}
        self.orders: list[retiring.OrderWatcher] = []
        self.copy_wishes: list[copies.CopyWatcher] = []
        self.objects = ObjectUsers(self)
        self.actor_users = ActorUsers(self)
        self.readers: dict[ClientNode, reading.Reader] = {}
        self.followers: dict[ClientNode, following.Follower] = {}
        self.plugin_watchers: list[plugins.PluginWatcher] = []
        self.record = Record()
        #: Schedulers that were suspended while another one was started.
        self.zombies: list[SchedulerNode] = []
        self.scheduler = SchedulerNode(self, 1, self.record)

    # -- requests of nodes ------------------------------------------------------------------------
    def new_id(self, kind: str) -> str:
        """Return a new id."""
        self._n_ids += 1
        return f"{kind}-{self._n_ids}"

    def new_address(self) -> str:
        """Return a new address."""
        return f"tcp://10.0.0.1:{self.new_id('port')}"

    def nbytes(self, key: str) -> int:
        """Return the size of a key's value."""
        return self.graph.by_key[key].nbytes

    def connect(self, node: SimulatedSession, role: Role) -> None:
        """Connect a session to the scheduler: `on_connected` or `on_refused` follows."""
        self.world.at(self.plan.timing.draw(self.world), self._accept, node, role)

    def _accept(self, node: SimulatedSession, role: Role) -> None:
        scheduler = self.scheduler
        zombies = [zombie for zombie in self.zombies if zombie.is_alive]
        if zombies and self.world.chance(0.3):
            scheduler = zombies[-1]
        if not scheduler.is_alive or scheduler.is_frozen:
            node.on_refused()
            return
        link = Link(self.world, self.plan.timing, (node, scheduler), wire=self.plan.wire)
        self._links = [entry for entry in self._links if not entry[1].is_broken]
        self._links.append((node, link))
        scheduler.accept(link, role, node.owner.user)
        node.on_connected(link)

    def add_worker(
        self,
        name: str,
        address: str,
        resources: dict[str, float],
        host: str,
        supervisor: SupervisorNode | None,
    ) -> WorkerNode:
        """Start a worker process."""
        worker = WorkerNode(self, name, address, resources, host)
        self.workers[worker.worker_id] = worker
        self.by_address[address] = worker
        if supervisor is not None:
            supervisor.watch(worker)
        return worker

    def on_start(self, worker: WorkerNode, task: WorkerTask, spec: Spec) -> None:
        """Note that a task's function is being called."""
        self.world.note(f"{worker!r} executes", (task.key, task.attempt))
        assert task.attempt not in self.executed, f"attempt {task.attempt} is executed twice"
        self.executed[task.attempt] = task.key
        self.executions.begin(task, spec)
        beside = self._executing.setdefault(task.key, {})
        for attempt, (other, link) in beside.items():
            self.world.probes["executed twice at once"] += 1
            given_up = self._given_up(attempt, link) or self._given_up(
                task.attempt, worker.session.link
            )
            assert given_up, (
                f"{worker!r} executes {task!r} while {other!r} executes attempt {attempt}"
            )
        beside[task.attempt] = (worker, worker.session.link)

    def _given_up(self, attempt: int, link: Link | None) -> bool:
        """Return whether the scheduler expects no report of an attempt that is being executed.

        It still counts the thread, or has lost the worker's session; or the worker, which it had
        given up, is back, and its inventory is being read.
        """
        ws = self.scheduler.session_of(link)
        return ws is None or attempt in ws.zombies or ws.inventory is not None

    def on_stop(self, worker: WorkerNode, task: WorkerTask) -> None:
        """Note that an execution has ended, or its process."""
        del self._executing[task.key][task.attempt]

    def raises(self, spec: Spec) -> bool:
        """Return whether an execution that ends now raises."""
        n = self.n_raised.get(spec.key, 0)
        if n < spec.n_raises:
            self.n_raised[spec.key] = n + 1
            return True
        return False

    def ask(
        self,
        asking: Any,
        address: str,
        request: GetData | GetPromised,
        on_answer: Callable[[KeysData | None], None],
    ) -> None:
        """Ask a worker's data port; `on_answer` gets its answer, or None if there is none."""
        world, plan = self.world, self.plan
        timing = plan.timing
        world.probes[f"fetch by {type(asking).__name__}"] += 1
        refused = not self.is_healed and world.chance(plan.p_fetch_refused)
        if refused:
            world.probes["fetch refused"] += 1
            self.refused[repr(asking)] = None

        def arrive(holder: WorkerNode | None) -> None:
            if holder is None or not holder.is_alive or refused:
                world.at(timing.draw(world), on_answer, None)
                return
            if not holder.when_awake(arrive, holder):
                return
            wanted = request
            keys = [request.key] if isinstance(request, GetPromised) else request.keys
            if not self.is_healed and world.chance(plan.p_fetch_missing):
                world.probes["fetch missing"] += 1
                wanted = GetData(request=request.request, keys=[])

            def send(answer: KeysData | None) -> None:
                if answer is None:
                    world.at(timing.draw(world), on_answer, None)
                    return
                if isinstance(wanted, GetData):
                    answer.missing += [key for key in keys if key not in wanted.keys]
                world.note(f"{holder!r} serves {asking!r}", answer)
                shared = copied(answer)
                delay = timing.draw(world) + sum(map(self.nbytes, answer.keys)) / 1e9
                world.at(delay, reply, holder, shared)

            if isinstance(wanted, GetPromised):
                holder.data.wait_for_attempt(wanted, send)
            else:
                holder.data.serve(asking, wanted, send)

        def reply(holder: WorkerNode, answer: KeysData) -> None:
            on_answer(answer if holder.is_alive else None)

        # The process is found when the connection is made: another one may have taken its place.
        world.at(timing.draw(world), lambda: arrive(self.by_address.get(address)))

    # -- the run ----------------------------------------------------------------------------------
    def run(self) -> None:
        """Run it all.

        Raises:
            SimulationFailed: an invariant does not hold, or something never ended.
        """
        with self.world.collecting(), limits.of_modules(self.plan, self.limits, self.recurring):
            try:
                self._build()
                self._trouble()
                self._heal()
                self._leave()
            except Exception as error:
                raise SimulationFailed(self._report(error)) from error

    def _build(self) -> None:
        plan, world = self.plan, self.world
        if plan.supervised:
            self.supervisors = [
                SupervisorNode(self, self.new_id("supervisor"))
                for _ in range(min(2, plan.n_workers))
            ]
        for i in range(plan.n_workers):
            self._start_worker(f"w{i}")
        for i in range(plan.n_clients):
            client = ClientNode(self, f"c{i}")
            self.clients.append(client)
            if i == 0:
                world.at(0.001, client.submit, self.graph.specs)
            self._each(plan.client_rate, client.act)
        self._each(plan.object_rate, self.objects.act)
        self._each(plan.call_rate, self.actor_users.act)
        self._each(plan.plugin_rate, lambda: plugins.act(self))
        self._each(plan.read_rate, lambda: reading.act(self))
        self._each(plan.follow_rate, lambda: following.act(self))
        self._each(plan.copy_rate, lambda: copies.wish(self))
        self._each(self.recurring.are_some * 8 / plan.time, lambda: self.recurring.act(self))
        self._each(self.queues.are_some * 8 / plan.time, lambda: self.queues.act(self))
        self._each(self.queues.are_some * 8 / plan.time, lambda: self.queues.block(self))
        self._each(self.arrays.are_some * 12 / plan.time, self.arrays.act)
        self._each(plan.break_rate, self._break_link)
        self._each(plan.break_actor_rate, self._break_actor_connection)
        self._each(plan.kill_rate, self._kill_worker)
        self._each(plan.freeze_rate, self._freeze_worker)
        self._each(plan.leave_rate, self._retire_worker)
        self._each(plan.join_rate, self._join)
        self._each(plan.restart_rate, self._restart_scheduler)
        self._each(plan.blip_rate, self._blip)
        self._each(plan.suspend_rate, self._suspend_scheduler)
        if plan.p_bye or plan.p_crash:
            for client in self.clients[1:]:
                when = world.rng.random() * plan.time
                if world.chance(plan.p_bye):
                    world.at(when, client.leave)
                elif world.chance(plan.p_crash):
                    world.at(when, client.crash)

    def _each(self, rate: float, what: Callable[[], None]) -> None:
        """Let something happen at a rate, until the plan's time is over."""
        when = 0.0
        while rate > 0:
            when += self.world.rng.expovariate(rate)
            if when > self.plan.time:
                break
            self.world.at(when, what)

    def _trouble(self) -> None:
        while self.world.now < self.plan.time:
            self._step()

    def _step(self) -> None:
        world = self.world
        world.step()
        self._replace_scheduler()
        for node in world.touched:
            node.check()
        world.touched.clear()
        assert world.n_events < MAX_EVENTS, "a run of its size does not take so many events"

    # -- faults -----------------------------------------------------------------------------------
    def _pick(self) -> WorkerNode | None:
        workers = list(self.workers.values())
        return self.world.rng.choice(workers) if workers else None

    def _start_worker(self, name: str) -> None:
        rng = self.world.rng
        if self.is_healed:
            name = self.new_id("spare")  # the other names are those of workers that may run all
        resources = rng.choice([{}, {"gpu": 1.0}, {"gpu": 2.0, "mem": 1.0}, {"mem": 0.3}])
        supervisors = self._starting_supervisors()
        supervisor = rng.choice(supervisors) if supervisors else None
        host = f"host{rng.randrange(2)}"
        self.add_worker(name, self.new_address(), dict(resources), host, supervisor)

    def _starting_supervisors(self) -> list[SupervisorNode]:
        """Return the supervisors that may start workers now."""
        return [one for one in self.supervisors if not one.plugins.core.is_holding]

    def _kill_worker(self) -> None:
        if (worker := self._pick()) is not None:
            self.world.probes["kill"] += 1
            worker.kill("SIGKILL")
            if worker.supervisor is None and self.world.chance(0.7):
                self.world.at(self.world.rng.random(), self._start_worker, worker.name)

    def _freeze_worker(self) -> None:
        if (worker := self._pick()) is not None:
            self.world.probes["freeze"] += 1
            worker.freeze(self.world.rng.random() * 3.0)

    def _retire_worker(self) -> None:
        if (worker := self._pick()) is not None:
            if self.plan.executes_once or self.world.chance(0.8):
                retiring.retire(self, worker)
            else:
                self.world.probes["leave"] += 1
                worker.leave()

    def _join(self) -> None:
        self.world.probes["join"] += 1
        self._start_worker(f"w{len(self.workers)}")

    def _break_link(self) -> None:
        links = [entry for entry in self._links if not entry[1].is_broken]
        if not links:
            return
        node, link = self.world.rng.choice(links)
        self.world.probes["break"] += 1
        delays = self._notice()
        self.world.note(f"the link of {node!r} breaks", delays)
        link.break_(delays)

    def break_line_of(self, node: WorkerNode) -> None:
        """Reset the connection of a worker to the scheduler."""
        for owner, link in self._links:
            if owner is node.session:
                link.break_()

    def _break_actor_connection(self) -> None:
        links = [link for w in self.workers.values() for link in w.actors.open_links()]
        busy = [link for link in links if link.sides[1].incoming]  # with calls on their way
        if links:
            self.world.probes["actor connection: breaks"] += 1
            self.world.rng.choice(busy or links).break_(self._notice())

    def _notice(self) -> tuple[float, float] | None:
        """Draw when each end of a connection notices that it is broken; None = soon."""
        if not self.world.chance(self.plan.p_half_open):
            return None
        # One end does not notice for long; a node may count the scheduler as silent first.
        late = self.world.rng.random() * 2 * self.plan.heartbeat * MISSED_HEARTBEATS
        return (late, 0.0) if self.world.chance(0.5) else (0.0, late)

    def _blip(self) -> None:
        """Reset all connections to the scheduler at once, with the messages on their way."""
        self.world.probes["blip"] += 1
        self.world.note("all connections are reset")
        for _, link in self._links:
            link.break_()

    def _restart_scheduler(self) -> None:
        if self.scheduler.is_alive:
            self.world.probes["scheduler restart"] += 1
            self.n_restarts += 1
            self.scheduler.kill()
            self.world.at(self.world.rng.random() * 0.5, self._start_scheduler)

    def _suspend_scheduler(self) -> None:
        """Stop the scheduler, start another one beside it, and let the first one go on later."""
        if self.scheduler.is_alive:
            self.world.probes["two schedulers"] += 1
            self.n_restarts += 1
            self.scheduler.freeze(0.1 + self.world.rng.random() * 5.0)
            self.zombies.append(self.scheduler)
            self.arrays.note_known(self.scheduler)
            for _, link in self._links:
                link.break_()
            self._start_scheduler()

    def _start_scheduler(self) -> None:
        self.scheduler = SchedulerNode(self, self.scheduler.number + 1, self.record)

    # -- healing ----------------------------------------------------------------------------------
    def _heal(self) -> None:
        world = self.world
        world.note("healing")
        self.is_healed = True
        self.plan.timing.p_stall = self.plan.actor_timing.p_stall = 0.0
        self.plan.p_clock_back = 0.0
        self._end_zombies()
        self.queues.resume_all(self.scheduler)
        for worker in list(self.workers.values()):
            worker.thaw()
        # A name that is taken is given out with a suffix: first make room for the newcomers.
        for worker in list(self.workers.values()):
            if self.plan.executes_once:
                break
            if worker.core.is_leaving:
                worker.end()
            elif worker.session.is_open and world.chance(0.5):
                worker.leave()
            elif worker.name in {"w0", "w1"}:
                worker.kill("make room")
        while not self.plan.executes_once and (
            self.scheduler.hears_the_dead
            or [w for w in self.scheduler.core.workers.values() if w.name in {"w0", "w1"}]
        ):
            self._step()
        while missing := self._missing_workers():
            for name in missing:
                supervisor = next(iter(self._starting_supervisors()), None)
                self.add_worker(name, self.new_address(), dict(EVERYTHING), "host0", supervisor)
            self._rest()
        for client in self.clients:
            client.watch(client.futures, wants_data=True)
        self._rest()
        # A worker whose farewell was lost with its connection is expected back for some time.
        while any(ws.is_away for ws in self.scheduler.core.workers.values()):
            self._rest()
        checks.check_ends(self)
        checks.check_agreement(self)
        self.objects.check_values()

    def _missing_workers(self) -> list[str]:
        """Return the names to be started so that no task stays unrunnable.

        An order of a user to retire all workers may have come after the last start. One that is
        full of what cannot leave takes nothing; another one of its name may run what is for it.
        """
        able = [one for one in self.workers.values() if one.resources == EVERYTHING]
        staying = {
            one.name for one in able if not (one.core.is_leaving or one.spill.plan.is_paused)
        }
        return [name for name in ABLE if name not in staying]

    def _end_zombies(self) -> None:
        """Leave one scheduler: if the newest one gave way, the one that began again above it."""
        alive = [zombie for zombie in self.zombies if zombie.is_alive]
        if self.scheduler.gave_way and alive:
            self.scheduler = max(alive, key=lambda zombie: zombie.core.epoch)
            self.scheduler.thaw()
        for zombie in alive:
            if zombie is not self.scheduler:
                zombie.kill()

    def _replace_scheduler(self) -> None:
        """Start another scheduler if the last one has given way to one that was ended."""
        if self.is_healed and self.scheduler.gave_way:
            self.n_restarts += 1
            self._start_scheduler()

    def _rest(self) -> None:
        """Go on until only timers are under way, and these lead to no further events."""
        world = self.world
        deadline = world.now + PATIENCE_S * (1.0 + self.plan.duration)
        quiet_since = world.now
        while world.now - quiet_since < (3.0 if self._all_ended() else SILENCE_S):
            self._step()
            if world.n_busy:
                quiet_since = world.now
            assert world.now < deadline, "the run does not come to rest"

    def _all_ended(self) -> bool:
        return (
            not copies_of(self.scheduler.core).open
            and not memory_of(self.scheduler.core).aside
            and all(
                future.state.status != "pending"
                for client in self.clients
                for future in client.futures
            )
            and all(client.lease is None for client in self.scheduler.core.clients.values())
        )

    # -- leaving ----------------------------------------------------------------------------------
    def _leave(self) -> None:
        world = self.world
        self.objects.finish()
        self.actor_users.check_at_rest()
        self.actor_users.finish()
        self._rest()
        alive = [client for client in self.clients if client.is_alive]
        if not alive:
            alive = [ClientNode(self, "cleaner")]
            self.clients += alive
        self.objects.clean(alive[0])
        self._rest()
        self.objects.check_at_rest()
        for client in self.clients:
            if world.chance(0.5):
                client.release_all()
            else:
                client.leave()
        self._rest()
        self.journal.forget_all()
        self._rest()
        while checks.lets_go_later(self):
            self._step()
        self._rest()
        checks.check_empty(self)
        checks.count_probes(self)

    # -- failures ---------------------------------------------------------------------------------
    def _report(self, error: Exception) -> str:
        text = f"{type(error).__name__}: {error}"
        keys = [key for key in self.graph.by_key if _names(text, key)][:2]
        lines = [
            f"at {self.world.now:.6f} s, event {self.world.n_events}: {text}",
            f"replay: {'WEFT_SIM_SESSIONS=1 ' * self.plan.executes_once}"
            f"WEFT_SIM_SEED={self.world.seed} .venv/bin/python -m pytest tests/sim -k replay",
        ]
        for key in keys:
            attempts = [str(attempt) for attempt, k in self.assigned.items() if k == key]
            lines.append(f"story of {key} (attempts {', '.join(attempts)}):")
            lines += self.world.story(f"'{key}'", limit=25)
        if not keys:
            lines.append("the last events:")
            lines += self.world.story("", limit=12)
        return "\n".join(lines)


def _names(text: str, key: str) -> bool:
    """Return whether a text is about this key and not about one that begins like it."""
    return any(
        f"{left}{key}{right}" in text for left in (" ", "'") for right in (" ", "'", ":", ",")
    )


__all__ = ["FAILED", "End", "Simulation", "SimulationFailed"]
