"""validate.py: for each invariant, a state that breaks it by hand."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from types import SimpleNamespace
from typing import Any

import pytest

from weft.protocol.errors import InvalidState
from weft.protocol.wire import messages as m
from weft.protocol.wire.roles import Role
from weft.scheduler.core.actors.waits import WaitingActors
from weft.scheduler.core.coordination.background import BACKGROUND_INVARIANTS
from weft.scheduler.core.coordination.cluster_events import EVENT_INVARIANTS
from weft.scheduler.core.coordination.invariants import OBJECT_INVARIANTS
from weft.scheduler.core.data.bandwidths import BANDWIDTH_INVARIANTS
from weft.scheduler.core.data.copies import CopyQuestion, Wish, copies_of
from weft.scheduler.core.data.part_indexes import INDEX_INVARIANTS
from weft.scheduler.core.data.relays import FetchRelay, RelayPart, relays_of
from weft.scheduler.core.ends.attempt_ends import MAX_CANCELLED, ends_of
from weft.scheduler.core.insight.cluster_size import size_of
from weft.scheduler.core.insight.cluster_totals import totals_of
from weft.scheduler.core.insight.history import history_of
from weft.scheduler.core.insight.refused_workers import MAX_REFUSED, refusals_of
from weft.scheduler.core.insight.task_stream import StreamReport, stream_of
from weft.scheduler.core.invariants.validate import INVARIANTS, validate
from weft.scheduler.core.leaving import leavers
from weft.scheduler.core.leaving.retiring import MAX_ORDERS, Order, retiring_of
from weft.scheduler.core.memory.feature import MEMORY_INVARIANTS
from weft.scheduler.core.output.output import flow_of
from weft.scheduler.core.output.wishes import OUTPUT_WISH_INVARIANTS
from weft.scheduler.core.plugins.plugins import Plugin
from weft.scheduler.core.plugins.records import plugins_of
from weft.scheduler.core.records.deadlines import Deadline
from weft.scheduler.core.records.peers import ClientHandle, FailedFetches, WorkerHandle
from weft.scheduler.core.records.prefixes import Prefix
from weft.scheduler.core.records.presence import LostWorker
from weft.scheduler.core.records.tasks import Function, SchedulerTask, TaskClass
from weft.scheduler.core.upkeep.slow_readers import slow_readers_of

from ...builders import Board, graph
from .feature_breakages import FEATURE_BREAKAGES


def busy_board() -> Board:
    """Return a board with a task in each state but forgotten, and with peers of each role.

    Most keys name the state of their task. "processing" reads "memory"; "waiting" reads it;
    "unwanted" has read "released".
    """
    board = Board(max_idle_functions=1)
    alice = board.client("alice")
    board.client("bob")
    board.supervisor("sup")
    board.connect(Role.CLIENT)
    worker = board.worker("w", supervisor_id="sup", resources={"r": 1.0})
    board.send(alice, graph("gone", function="idle"))
    board.finish(worker, "gone")
    board.send(alice, m.ReleaseKeys(keys=["gone"]))
    board.send(alice, graph("released -> unwanted", "failed", function="g"))
    board.finish(worker, "released")
    board.finish(worker, "unwanted")
    board.send(alice, m.ReleaseKeys(keys=["released"]))
    board.raise_(worker, "failed")
    board.send(alice, graph("memory -> processing", "retried", retries=1))
    board.finish(worker, "memory")
    board.raise_(worker, "retried")
    board.send(alice, graph("holds", resources={"r": 1.0}))
    board.send(alice, graph("queued -> waiting", resources={"r": 1.0}))
    board.send(alice, graph("aside", workers=["nowhere"]))
    return board


class Broken:
    """A board's state to break, with short names for its parts."""

    def __init__(self) -> None:
        board = busy_board()
        self.board = board
        self.state = board.state
        self.task = board.task
        (self.w,) = board.state.workers.values()
        self.alice, self.bob = board.state.clients.values()
        (self.sup,) = board.state.supervisors.values()
        (self.idle,) = board.state.idle_functions
        self.classy = board.task("queued").group.task_class
        self.function = board.task("processing").group.function

    def stranger(self) -> SchedulerTask:
        return SchedulerTask("stranger", self.task("processing").group, b"", 0)

    def set(self, key: str, field: str, value: Any) -> None:
        setattr(self.task(key), field, value)


def break_lane(b: Broken) -> None:
    next(iter(b.classy.queue.rotation.lanes.values())).n += 1


def break_cycle(b: Broken) -> None:
    processing, memory = b.task("processing"), b.task("memory")
    memory.dependencies = (processing,)
    processing.dependents = {memory: None}


def lose(b: Broken, worker_id: str) -> None:
    b.state.lost.unreported[worker_id] = LostWorker(b.w, {}, {}, [])


def relay(b: Broken, n_asked: int, worker: WorkerHandle) -> None:
    """One worker is asked for a part of a fetch."""
    relays_of(b.state)[5] = RelayPart(FetchRelay(b.alice, 1, n_asked), worker, ["k"])


def refuse(b: Broken, *whens: float) -> None:
    for n, when in enumerate(whens):
        refusals_of(b.state)["w", str(n)] = SimpleNamespace(when=when)  # type: ignore[assignment]


def plugin(b: Broken, name: str = "p") -> Plugin:
    found = plugins_of(b.state).kept["p"] = Plugin(name, "id", b"")
    found.ready[b.w] = None
    return found


def waited_for(b: Broken, name: str) -> Plugin:
    """A plugin that the worker was asked to set up."""
    made = Plugin(name, "id", b"")
    made.waiting[b.w] = 1
    return made


def stream_report() -> StreamReport:
    """A report of one attempt."""
    times = m.AttemptTimes(
        attempts=[1], ended_us=[1], durations_us=[1], threads=[0], nbytes=[1], types=["int"]
    )
    return StreamReport("w", "tcp://w", "host", 0.0, times, ["k"], [["inc", []]], [{}], [0], [])


def wish(b: Broken) -> None:
    copies_of(b.state).wishes[b.task("memory")] = Wish(2, b.task("memory").attempt, asked={b.w: 1})


def leave(b: Broken) -> leavers.Leaver:
    b.w.is_leaving = True
    leaver = leavers.leavers_of(b.state).by_worker[b.w] = leavers.Leaver(b.w, 0.0)
    return leaver


def let_go(b: Broken) -> None:
    leaver = leavers.leavers_of(b.state).by_worker[b.w] = leavers.Leaver(b.w, 0.0)
    leaver.may_go = True


BREAKAGES: dict[str, Callable[[Broken], Any]] = {
    # Functions.
    "prefixes are filed by name": lambda b: setattr(b.function.prefix, "name", "other"),
    "the estimate of a prefix has a minimum": lambda b: setattr(
        b.function.prefix, "estimate_ns", 1
    ),
    "prefixes of functions are known": lambda b: setattr(b.function, "prefix", Prefix("new")),
    "n_functions counts the functions of a prefix": lambda b: setattr(
        b.function.prefix, "n_functions", 9
    ),
    "a prefix is idle iff it has no function and is not shown": lambda b: (
        b.state.prefixes.idle.update({b.function.prefix: None})
    ),
    "a prefix shares a series iff it is not shown": lambda b: setattr(
        b.function.prefix, "series", b.state.prefixes.other
    ),
    "few prefixes are shown": lambda b: b.state.prefixes.shown.update(
        {str(n): b.function.prefix for n in range(99)}
    ),
    "active lists the prefixes with unfinished tasks": lambda b: b.state.prefixes.active.clear(),
    "active prefixes are known": lambda b: b.state.prefixes.active.update({Prefix("new"): None}),
    "n_before is the sum over all prefixes": lambda b: setattr(b.function.prefix, "n_before", 9),
    "n_failed_before is the sum over all prefixes": lambda b: setattr(
        b.function.prefix, "n_failed_before", 9
    ),
    "compute_ns is the sum over all prefixes": lambda b: setattr(b.state.prefixes, "compute_ns", 9),
    "tasks_completed is the sum of n_finished over all prefixes": lambda b: setattr(
        b.state.counters, "tasks_completed", 99
    ),
    "n_failed is the sum over all prefixes": lambda b: setattr(b.state.counters, "n_failed", 99),
    "functions are filed by id": lambda b: setattr(b.function, "function_id", b"other"),
    "functions of tasks are known": lambda b: setattr(
        b.task("aside").group, "function", Function(b"new", b"", b.function.prefix)
    ),
    "function.n_tasks counts the tasks, and clients that keep it": lambda b: setattr(
        b.function, "n_tasks", 9
    ),
    "a client that was refused keys keeps functions": lambda b: b.alice.refused.update({"x": None}),
    "a function is idle iff no task uses it and no client keeps it": lambda b: (
        b.state.idle_functions.clear()
    ),
    "workers of a function are registered": lambda b: b.function.workers.update({Broken().w: None}),
    "idle functions are known": lambda b: b.state.functions.pop(b.idle.function_id),
    "idle functions are few": lambda b: setattr(b.state.idle_functions, "max_n", 0),
    "idle_functions_nbytes is the sum of their blobs": lambda b: setattr(
        b.state.idle_functions, "nbytes", 1
    ),
    # Classes.
    "n_unfinished counts the active tasks of a prefix": lambda b: setattr(
        b.function.prefix, "n_unfinished", 9
    ),
    "n_processing counts the tasks of a prefix at workers": lambda b: setattr(
        b.function.prefix, "n_processing", 9
    ),
    "the default class stays": lambda b: b.state.classes.pop(()),
    "classes are filed by key": lambda b: setattr(b.classy, "key", ("other",)),
    "classes of tasks are known": lambda b: b.state.classes.pop(b.classy.key),
    "class.n_tasks counts the tasks of a class": lambda b: setattr(b.classy, "n_tasks", 9),
    "a class without tasks is dropped, but for the default class": lambda b: b.state.classes.update(
        x=TaskClass(("x",), ("x",), False, ())
    ),
    "the queue of a class holds its queued tasks, once": lambda b: b.set(
        "memory", "state", "queued"
    ),
    "len(queue) counts the live entries": lambda b: setattr(b.classy.queue, "n", 9),
    "lanes of a queue are sorted, counted and in the rotation": break_lane,
    "each client has a lane of its own at each user priority": lambda b: setattr(
        b.task("queued").group, "client", 99
    ),
    "unrunnable holds the tasks of a class in state no_worker": lambda b: b.task(
        "aside"
    ).group.task_class.unrunnable.clear(),
    "no task is set aside while a worker may run it and reach its inputs": lambda b: b.task(
        "aside"
    ).group.task_class.members.update({b.w: None}),
    "no task is queued while no worker may run it": lambda b: b.classy.members.clear(),
    "no task is queued while a worker has room for it and wants it": lambda b: (
        b.w.free_resources.update(r=9.0)
    ),
    "the level of a class is that of its best queued task": lambda b: setattr(
        b.classy, "level", 1 << 30
    ),
    "ready lists the classes with a queued task": lambda b: b.state.ready.remove(b.classy),
    "ready lists known classes": lambda b: b.state.ready.put(
        TaskClass(("x",), ("x",), False, ()), 0
    ),
    "members are the workers that stay and may run the class": lambda b: (
        b.state.default_class.members.clear()
    ),
    "a member of a class has the class among its own": lambda b: b.w.classes.clear(),
    "ready has the classes with resources in turns": lambda b: b.state.ready.asking.put(
        b.state.default_class, 0
    ),
    "takers are registered and have resources": lambda b: b.state.takers.update({Broken().w: 0}),
    "open and partly are the members with room, except stuck ones": lambda b: (
        b.state.default_class.open.clear()
    ),
    "partly are members that do not want more": lambda b: b.state.default_class.partly.update(
        {b.w: None}
    ),
    # Links between tasks, and between tasks and clients.
    "tasks are filed by key": lambda b: b.set("processing", "key", "other"),
    "dependencies are unique": lambda b: b.set(
        "processing", "dependencies", (b.task("memory"),) * 2
    ),
    "dependencies are known": lambda b: b.state.tasks.pop("memory"),
    "a dependency has the task among its dependents": lambda b: b.set("memory", "dependents", None),
    "dependents are None if empty": lambda b: b.set("memory", "dependents", {}),
    "dependents are known": lambda b: b.state.tasks.pop("processing"),
    "a dependent has the task among its dependencies": lambda b: b.set(
        "processing", "dependencies", ()
    ),
    "the graph has no cycle": break_cycle,
    "n_waiters counts the active dependents": lambda b: b.set("memory", "n_waiters", 7),
    "wanted_by is unique": lambda b: b.set("memory", "wanted_by", (b.alice, b.alice)),
    "clients of wanted_by are known": lambda b: b.state.clients.pop("alice"),
    "a client of wanted_by has the task among its wants": lambda b: b.alice.wants.clear(),
    # States of tasks.
    "a known task has a state, and is not forgotten": lambda b: b.set(
        "processing", "state", "forgotten"
    ),
    "a waiting task waits for a dependency": lambda b: b.set("waiting", "dependencies", ()),
    "waiting_on holds the dependencies that are not in memory": lambda b: b.set(
        "waiting", "waiting_on", {b.task("memory"): None}
    ),
    "waiting_on is None unless waiting": lambda b: b.set("queued", "waiting_on", {}),
    "a task that could run has its inputs": lambda b: b.set(
        "queued", "dependencies", (b.task("holds"),)
    ),
    "an active task is needed": lambda b: b.set("waiting", "wanted_by", ()),
    "an input that an active task lacks is being made": lambda b: b.set(
        "waiting", "dependencies", (b.task("released"),)
    ),
    "a ticket iff queued": lambda b: b.set("processing", "ticket", 1),
    "worker iff processing": lambda b: b.set("processing", "worker", None),
    "replicas iff in memory": lambda b: b.set("memory", "replicas", ()),
    "failure iff erred": lambda b: b.set("failed", "failure", None),
    "attempt > 0 iff processing or in memory": lambda b: b.set("queued", "attempt", 1),
    "the attempt of a task was given out": lambda b: b.set("memory", "attempt", 1 << 60),
    "the worker of a processing task is registered": lambda b: b.set(
        "processing", "worker", Broken().w
    ),
    "the worker of a processing task lists it": lambda b: b.w.processing.clear(),
    "the worker of a processing task may run it": lambda b: b.w.resources.clear(),
    "the estimate of a processing task has a minimum": lambda b: b.set(
        "processing", "estimate_ns", 1
    ),
    "estimate_ns is 0 unless processing": lambda b: b.set("memory", "estimate_ns", 1),
    "replicas are at registered workers": lambda b: b.state.workers.clear(),
    "a worker of replicas has the task in has_what": lambda b: b.w.has_what.clear(),
    "replicas are unique": lambda b: b.set("memory", "replicas", (b.w, b.w)),
    "data is kept only while it is needed": lambda b: b.set("unwanted", "wanted_by", ()),
    "a failure is kept only while it is wanted": lambda b: b.set("failed", "wanted_by", ()),
    "no task waits for a failed one": lambda b: b.set("failed", "n_waiters", 1),
    "no task and no client needs a released task": lambda b: b.set("released", "n_waiters", 1),
    "a released task is known as lineage, or as wanted": lambda b: b.set(
        "released", "dependents", None
    ),
    # Workers.
    "workers are filed by peer": lambda b: setattr(b.w, "peer", 99),
    "the connection of a worker is open": lambda b: b.state.roles.pop(b.w.peer),
    "an away worker is waited for, or prepares, and no other": lambda b: setattr(
        b.w, "away_due", b.state.call_after(1.0, lambda state: None)
    ),
    "only a worker that is away sends an inventory, or is waited for": lambda b: b.w.awaited.update(
        {b.alice: {"memory": None}}
    ),
    "failed_at lists failed tasks": lambda b: b.state.failed_at.update(
        {b.task("memory"): (b.w, 1)}
    ),
    "processing files the tasks of a worker by attempt": lambda b: b.w.processing.update(
        {77: b.task("processing")}
    ),
    "processing lists known tasks": lambda b: b.w.processing.update({77: b.stranger()}),
    "occupancy_ns is the sum over processing": lambda b: setattr(b.w, "occupancy_ns", 1),
    "blocked lists attempts of its worker": lambda b: b.w.blocked.update({77: None}),
    "has_what lists only data of its worker": lambda b: b.w.has_what.update(
        {b.task("processing"): None}
    ),
    "has_what lists known tasks": lambda b: b.w.has_what.update({b.stranger(): None}),
    "nbytes of a worker is the sum over has_what": lambda b: setattr(b.w, "nbytes", 1),
    "a dropped attempt is not processed": lambda b: b.w.zombies.update(
        {b.task("processing").attempt: ()}
    ),
    "a worker has the resources that are held there": lambda b: b.w.zombies.update(
        {77: (("other", 1.0),)}
    ),
    "free resources are negative only where tasks may wait for them": lambda b: (
        b.w.free_resources.update(r=-1.0)
    ),
    "n_asking counts the tasks of a worker by resource": lambda b: b.w.n_asking.update(r=7),
    "no more tasks wait for resources than ask for them": lambda b: setattr(b.w, "n_behind", 1),
    "a task waits for resources where more are asked for than there are": lambda b: (
        b.w.free_resources.update(r=-1.0)
    ),
    "free and held resources of a worker are all that it has": lambda b: b.w.free_resources.update(
        r=0.5
    ),
    "a class of a worker has it among its members": lambda b: b.state.default_class.members.clear(),
    "a worker that leaves is in no class": lambda b: setattr(b.w, "is_leaving", True),
    "alone of a worker is itself": lambda b: setattr(b.w, "alone", ()),
    "workers_by_id files the workers": lambda b: b.state.workers_by_id.clear(),
    "workers_by_address files the workers": lambda b: b.state.workers_by_address.update(x=b.w),
    "idle are the workers that take tasks and process nothing": lambda b: b.state.idle.update(
        {b.w: None}
    ),
    "loaded are the workers with tasks that wait for threads or resources": lambda b: (
        b.state.loaded.clear()
    ),
    "what is measured of an out-box lies in front of its last message": lambda b: slow_readers_of(
        b.state
    ).measured.update({1: ([], 0, 0)}),
    "lost workers are filed by id": lambda b: lose(b, "other"),
    "a lost worker is not registered": lambda b: lose(b, b.w.worker_id),
    "exit reports are of registered workers": lambda b: b.state.lost.exit_reports.update(
        {"gone": m.WorkerExited(worker_id="gone", reason="", running=[])}
    ),
    "unreachable lists registered workers": lambda b: b.w.unreachable.update(
        {Broken().w: FailedFetches(0.0)}
    ),
    "unreachable_from is the inverse of unreachable": lambda b: b.w.unreachable_from.update(
        {b.w: None}
    ),
    "failed fetches count at least one, and the first is not after the last": (
        lambda b: b.w.unreachable.update({b.w: FailedFetches(0.0, n=0)})
    ),
    "functions of a worker are those that have it among their workers": lambda b: (
        b.w.functions.clear()
    ),
    "staying are the workers that do not leave, by name": lambda b: b.state.staying.clear(),
    "nthreads is the sum over staying": lambda b: setattr(size_of(b.state), "nthreads", 99),
    # Clients and other peers.
    "clients are filed by id": lambda b: setattr(b.alice, "client_id", "other"),
    "the lease of a client ends iff it is not connected": lambda b: setattr(
        b.alice, "lease", b.state.call_after(1.0, print)
    ),
    "a connected client is filed by its connection": lambda b: b.state.clients_by_peer.clear(),
    "clients_by_peer files known clients by peer": lambda b: b.state.clients_by_peer.update(
        {99: b.alice}
    ),
    "the connection of a client is open": lambda b: b.state.roles.pop(b.alice.peer),
    "wants of a client is symmetric with wanted_by": lambda b: b.bob.wants.update(
        {b.task("memory"): None}
    ),
    "wants lists known tasks": lambda b: b.bob.wants.update({b.stranger(): None}),
    "alone of a client is itself": lambda b: setattr(
        b.alice, "alone", (ClientHandle("x", "x", 9),)
    ),
    "summed workers are registered": lambda b: totals_of(b.state).of_workers.report(
        "gone", [1], is_new=True
    ),
    "summed supervisors are registered": lambda b: totals_of(b.state).of_supervisors.report(
        "gone", [1], is_new=True
    ),
    "supervisors are filed by peer": lambda b: setattr(b.sup, "peer", 99),
    "supervisors are filed by id as well": lambda b: b.state.supervisors_by_id.update({"gone": {}}),
    "the connection of a supervisor is open": lambda b: b.state.roles.pop(b.sup.peer),
    "the level of each open connection is known": lambda b: b.state.levels.pop(b.sup.peer),
    "strangers are open and not registered": lambda b: b.state.strangers.clear(),
    "strangers, workers and supervisors are seen": lambda b: b.state.seen.clear(),
    "seen is in order of time": lambda b: b.state.seen.update({b.state.seen.popitem()[0]: -1.0}),
    "silence is looked for while a peer may be silent": lambda b: b.state.deadlines.cancel(
        b.state.seen.check
    ),
    "clients are to be notified while tasks are unrunnable for a short time": lambda b: setattr(
        b.state.default_class, "unrunnable_notice", b.state.call_after(1.0, print)
    ),
    "n_pending counts the pending deadlines": lambda b: setattr(b.state.deadlines, "n_pending", 9),
    "refusals are few": lambda b: refuse(b, *range(MAX_REFUSED + 1)),
    "refusals are in order of time": lambda b: refuse(b, 2.0, 1.0),
    # Relays, counts, and containers that are empty between events.
    "a relay counts the workers that it asks": lambda b: relay(b, 2, b.w),
    "the worker of a relay is registered": lambda b: relay(b, 1, Broken().w),
    "ahead is empty between events": lambda b: b.state.ahead.update({b.task("waiting"): None}),
    "touched is empty between events": lambda b: b.state.touched.update({b.w: None}),
    "n_exceptions lists known tasks": lambda b: b.state.n_exceptions.update({b.stranger(): 1}),
    "a task is retried at most so often as it may": lambda b: b.state.n_exceptions.update(
        {b.task("retried"): 2}
    ),
    "cancelled attempts that are noted are few": lambda b: ends_of(b.state).cancelled.update(
        {f"key-{i}": [] for i in range(MAX_CANCELLED + 1)}
    ),
    "ends of attempts are noted of few tasks, all known": lambda b: ends_of(b.state).update(
        {b.stranger(): []}
    ),
    "deaths lists known tasks": lambda b: b.state.deaths.update({b.stranger(): []}),
    "a task that failed starts to count deaths anew": lambda b: b.state.deaths.update(
        {b.task("failed"): []}
    ),
    "what pauses could run now": lambda b: b.state.paused.update(
        {b.task("memory"): b.state.call_after(9.0, print)}
    ),
    "a pause ends": lambda b: b.state.paused.update({b.task("aside"): Deadline(0.0, None, ())}),
    "out_of_reach lists known tasks": lambda b: b.state.out_of_reach.update(
        {b.stranger(): (1, 0.0, 0.0)}
    ),
    "failures counts those of erred tasks": lambda b: b.state.failures.add(["exception", "new"]),
    "counters count the tasks in memory, erred and released": lambda b: setattr(
        b.state.counters, "n_memory", 99
    ),
    # Output, sums over workers, and orders.
    "a notice is due iff lines were left out": lambda b: flow_of(b.state).n_dropped.update({1: 1}),
    "lines are shown of workers that are here": lambda b: flow_of(b.state).shown_to.update(
        {b.w: {}}
    ),
    "the task stream ends iff it is on": lambda b: setattr(
        stream_of(b.state), "due", Deadline(0.0, None, ())
    ),
    "nothing is kept that nobody wants": lambda b: stream_of(b.state).reports.append(
        stream_report()
    ),
    "what workers report now is of workers that are here": lambda b: stream_of(
        b.state
    ).running.update({copy(b.w): (0.0, None)}),
    "the task stream counts its rows": lambda b: stream_of(b.state).reports.append(
        stream_report(), 2
    ),
    "each sample has a number for each column": lambda b: (
        history_of(b.state).samples.columns["busy"].append(1)
    ),
    "the totals have the threads of all workers": lambda b: setattr(
        totals_of(b.state), "nthreads", 9
    ),
    "the totals have the memory limits of all workers": lambda b: setattr(
        b.w, "memory_limit", b.w.memory_limit + 1
    ),
    "the totals have the managed memory of all workers": lambda b: setattr(
        totals_of(b.state), "managed", 9
    ),
    "the totals have the resident memory of all workers": lambda b: setattr(
        b.w, "resident_nbytes", 9
    ),
    "the totals list the workers whose memory is nearly full": lambda b: totals_of(
        b.state
    ).full.update({b.w: None}),
    "leavers are the registered workers that leave": lambda b: leavers.leavers_of(
        b.state
    ).by_worker.update({b.w: leavers.Leaver(b.w, 0.0)}),
    "a worker that may leave has no task": let_go,
    "the feature is busy, and looks, while a worker leaves": lambda b: b.state.busy.update(
        {leavers.Leavers: None}
    ),
    "a leaver looks at each result that no worker has which stays": lambda b: leave(b).left.clear(),
    "orders are few": lambda b: retiring_of(b.state).orders.update(
        {str(n): Order(1, 1) for n in range(MAX_ORDERS + 1)}
    ),
    "an order waits for registered workers that leave": lambda b: retiring_of(
        b.state
    ).orders.update({"1": Order(1, 1, {b.w.worker_id: b.w})}),
    "threadless lists the classes whose tasks take no thread": lambda b: b.state.threadless.update(
        {b.classy: None}
    ),
    "a task without a recipe has no arguments": lambda b: setattr(b.classy, "has_recipes", False),
    # Plugins.
    "actors whose thread waits were made by attempts that have ended": lambda b: b.state.record(
        WaitingActors
    ).by_worker.update({b.w: dict.fromkeys(b.w.processing)}),
    "waits are those of actors of workers that are registered": lambda b: b.state.record(
        WaitingActors
    ).by_worker.update({copy(b.w): {}}),
    "plugins are filed by name": lambda b: plugin(b, "other"),
    "a plugin is kept or ends": lambda b: setattr(plugin(b), "is_ending", True),
    "each process has a kept plugin, or waits for it": lambda b: plugin(b).ready.clear(),
    "a worker sets up one plugin at a time": lambda b: plugins_of(b.state).kept.update(
        {name: waited_for(b, name) for name in ("p", "q")}
    ),
    "a worker that tries a plugin waits for it": lambda b: setattr(plugin(b), "trial", b.w),
    "supervisors that are required to have a plugin wait for it, and others renew": lambda b: (
        plugin(b).required.update({b.w: None})
    ),
    "a worker that prepares is away and waits for a plugin": lambda b: plugins_of(
        b.state
    ).preparing.update({b.w: None}),
    "a client waits only for a plugin that some process has not reported": lambda b: plugin(
        b
    ).orders.append((1, 1)),
    "plugins are few and small": lambda b: setattr(plugin(b), "nbytes", 1 << 40),
    "copies are fetched by registered workers that stay": lambda b: (
        wish(b),
        setattr(b.w, "is_leaving", True),
    ),
    "a rescue is known while its copy is under way": lambda b: copies_of(b.state).wishes.update(
        {b.task("memory"): Wish(1, b.task("memory").attempt, is_rescue=True)}
    ),
    "open and short list tasks with a wish": lambda b: copies_of(b.state).short.update(
        {b.task("memory"): None}
    ),
    "a wish with a copy under way is open": lambda b: wish(b),
    "workers are asked again while copies are under way": lambda b: (
        wish(b),
        copies_of(b.state).open.update({b.task("memory"): None}),
    ),
    "a question waits for copies that are under way": lambda b: copies_of(b.state).questions.append(
        CopyQuestion(1, 1, [], {b.task("memory"): None})
    ),
    **FEATURE_BREAKAGES,
}


def test_the_board_has_a_task_in_each_state():
    board = busy_board()
    names = ["released", "waiting", "queued", "processing", "memory"]
    assert board.states(*names, "aside", "failed", "gone") == [*names, "no_worker", "erred", "-"]
    assert list(board.state.n_exceptions) == [board.task("retried")]
    validate(board.state)


def test_each_invariant_is_broken_once():
    # These are broken in the tests of what they are about.
    elsewhere = {
        **OBJECT_INVARIANTS,
        **BACKGROUND_INVARIANTS,
        **OUTPUT_WISH_INVARIANTS,
        **MEMORY_INVARIANTS,
        **INDEX_INVARIANTS,
        **BANDWIDTH_INVARIANTS,
        **EVENT_INVARIANTS,
    }
    every = [*INVARIANTS, *Board().state.features.invariants]
    assert sorted([*BREAKAGES, *elsewhere]) == sorted(every)


@pytest.mark.parametrize("name", BREAKAGES)
def test_a_broken_invariant_is_named(name):
    broken = Broken()
    BREAKAGES[name](broken)
    with pytest.raises(InvalidState) as caught:
        validate(broken.state)
    assert f"{name}: found " in caught.value.text


def test_the_error_names_all_broken_invariants_and_has_the_story_of_the_tasks():
    board = busy_board()
    board.task("processing").n_waiters = 9
    board.task("memory").nbytes += 1
    with pytest.raises(InvalidState) as caught:
        validate(board.state)
    assert "n_waiters counts the active dependents: found (<SchedulerTask" in caught.value.text
    assert "nbytes of a worker is the sum over has_what: found " in caught.value.text
    assert any("assigned to" in line for line in caught.value.story)
