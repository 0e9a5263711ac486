"""The parameters of one run: sizes, rates and limits, drawn from its seed.

Swarm testing: each run draws the kinds of trouble that it has and how much of each, so that
some runs are nothing but worker kills on a chain and others have a little of everything. A run that
has every fault at once finds less: the faults hide each other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from .links import Timing


@dataclass
class Plan:
    """The drawn parameters. Rates are events per second of virtual time; p_x are probabilities."""

    # -- sizes
    n_clients: int
    n_workers: int
    nthreads: int
    n_tasks: int
    n_functions: int
    shape: str
    duration: float  #: mean of a task, seconds
    p_long: float  #: share of tasks that take 20 times as long
    supervised: bool
    wire: bool  #: messages go through real frames
    time: float  #: faults and new work come until then, seconds

    # -- tasks
    p_raise: float  #: share of tasks that always raise
    p_flaky: float  #: share of tasks that raise a few times first
    retries: int
    pauses: list[float]  #: before a retry, see `Retries`; [] = none
    p_retry: float  #: share of a user's operations that retry failed futures, if there are any
    p_reschedule: float  #: share of executions that ask for another worker
    p_timeout: float  #: share of tasks with a time limit
    p_poison: float  #: share of tasks that kill their worker
    p_large: float  #: share of results that do not ride along
    p_named: float  #: share of keys that the user named
    p_priority: float
    p_restricted: float
    p_resources: float
    p_buffers: float  #: share of tasks with out-of-band arguments

    # -- clients
    client_rate: float
    p_release_early: float
    p_cancel: float
    p_force: float
    p_share: float
    p_resubmit: float
    p_fetch: float
    p_bye: float
    p_crash: float
    lease: float

    object_rate: float  #: calls of locks, queues and others
    plugin_rate: float  #: plugins that users register and unregister
    p_plugin_fails: float
    read_rate: float  #: questions for the task stream
    follow_rate: float  #: records of loggers that users follow, and changes of what they follow
    copy_rate: float  #: wishes for several copies

    # -- the network
    timing: Timing
    break_rate: float
    p_half_open: float
    p_fetch_refused: float
    p_fetch_missing: float

    # -- workers
    kill_rate: float
    freeze_rate: float
    leave_rate: float
    join_rate: float
    p_same_address: float
    restart_rate: float  #: of the scheduler

    # -- sessions
    blip_rate: float  #: all connections to the scheduler are reset at once
    suspend_rate: float  #: the scheduler stops for a while, and another one is started beside it
    p_recorded: float  #: share of starts of a scheduler that know the last members and epoch
    p_clock_back: float  #: share of starts of a scheduler whose clock is an hour behind
    away: float  #: time that a lost worker has to come back
    p_release: float  #: share of a user's operations that release futures
    p_put: float  #: share of tasks without dependencies whose value the client puts
    p_scattered: float  #: share of those whose client does not keep the value
    p_actor: float  #: share of the other tasks that make actors
    p_put_fails: float  #: share of puts that do not arrive, and of those that are not answered
    put_s: float  #: time that a value takes, at most
    p_block: float  #: share of executions that wait for something, and give their seat up
    #: Only the network and the scheduler fail: what was executed must not be executed again.
    executes_once: bool

    # -- tasks that submit tasks
    p_calls: float  #: share of the other tasks of users that do
    p_deep: float  #: share of those that tasks submit
    p_shared_calls: float  #: share of submissions that are of a task of another one, too
    p_task_locks: float  #: share of those tasks that hold a lock meanwhile
    p_interruptible: float  #: share of interrupts that find such a task where it can be hit

    # -- calls of actors
    call_rate: float  #: of users
    actor_timing: Timing  #: of connections over which they call
    break_actor_rate: float  #: of these
    p_call_again: float  #: share of calls in doubt after which their user calls at once
    p_task_calls: float  #: share of tasks with actors as inputs that call them

    # -- limits and boundaries
    allowed_deaths: int
    heartbeat: float
    lateness: float  #: of a timer of the scheduler, at most
    flush_delay: float
    chunk_told_after: float
    ride_along: int
    limits: dict[str, int] = field(default_factory=dict)

    @classmethod
    def draw_sessions(cls, rng: Random) -> Plan:
        """Draw a run in which connections break and the scheduler dies, and no worker."""
        plan = cls.draw(rng, [1.0, 3.0, 10.0])
        plan.plugin_rate = rng.choice([1.0, 8.0]) / plan.time
        plan.duration = rng.choice([0.0002, 0.003, 0.05, 0.3, 1.0])
        plan.p_poison = plan.p_cancel = plan.p_bye = plan.p_crash = 0.0
        plan.p_fetch_refused = plan.p_fetch_missing = plan.p_half_open = 0.0
        plan.p_retry = plan.p_reschedule = 0.0
        if plan.supervised:  # it would end the processes of tasks that do not end
            plan.p_timeout = 0.0
        plan.kill_rate = plan.freeze_rate = plan.leave_rate = 0.0
        plan.timing.p_stall = plan.p_restricted = plan.p_plugin_fails = 0.0
        plan.lease = 60.0
        plan.away = 60.0
        plan.p_release = rng.choice([0.0, 0.0, 0.2])
        plan.p_release_early = rng.choice([0.0, 0.5])
        plan.executes_once = True
        plan.p_recorded = 1.0
        plan.break_rate = rng.choice([0.0, 2.0, 10.0]) / plan.time
        plan.blip_rate = rng.choice([0.0, 1.0, 4.0]) / plan.time
        plan.restart_rate = rng.choice([0.0, 0.0, 1.0, 3.0]) / plan.time
        plan.suspend_rate = 0.0
        if not (plan.break_rate or plan.blip_rate or plan.restart_rate):
            # What leaves with all the time that it needs takes nothing with it; an actor would.
            plan.leave_rate = rng.choice([1.0, 5.0]) / plan.time
            plan.p_actor = 0.0
        return plan

    @classmethod
    def draw(cls, rng: Random, times: list[float] | None = None) -> Plan:
        """Draw a run, which lasts for one of some times; None = as others do."""

        def some(probability: float, low: float, high: float) -> float:
            """Return mostly 0, otherwise a random value."""
            value = low + (high - low) * rng.random()
            return value if rng.random() < probability else 0.0

        calm = rng.random() < 0.1
        small = rng.random() < 0.6
        faults = 0.0 if calm else 1.0
        timing = Timing(
            latency=rng.choice([0.0, 0.0001, 0.001, 0.02]),
            jitter=rng.choice([0.0, 0.0002, 0.002, 0.05]),
            p_stall=some(0.3 * faults, 0.001, 0.05),
            stall=rng.choice([0.05, 0.5, 3.0]),
        )
        time = rng.choice(times or [0.3, 1.0, 3.0, 10.0])
        supervised = rng.random() < 0.6
        return cls(
            n_clients=rng.choice([1, 1, 2, 3]),
            n_workers=rng.choice([1, 2, 2, 3, 4, 6]),
            nthreads=rng.choice([1, 1, 2, 4]),
            n_tasks=rng.randint(3, 25) if small else rng.randint(25, 110),
            n_functions=rng.choice([1, 2, 5]),
            shape=rng.choice(["random", "chains", "layers", "tree", "fan", "wide"]),
            duration=rng.choice([0.00001, 0.0002, 0.003, 0.05, 0.3]),
            p_long=some(0.4, 0.02, 0.2),
            supervised=supervised,
            wire=rng.random() < 0.25,
            time=time,
            p_raise=some(0.3, 0.02, 0.2),
            p_flaky=some(0.3, 0.05, 0.3),
            retries=rng.choice([0, 1, 3]),
            pauses=rng.choice([[], [], [0.01, 2.0, 1.0, 0.5], [0.5, 1.0, 0.5, 0.0]]),
            p_retry=some(0.5, 0.1, 0.6),
            p_reschedule=some(0.2, 0.02, 0.3),
            p_timeout=some(0.3, 0.05, 0.5),
            # Without a supervisor that starts workers again there would be none left.
            p_poison=some(0.2 * faults, 0.01, 0.08) if supervised else 0.0,
            p_large=some(0.6, 0.1, 0.9),
            p_named=some(0.4, 0.1, 0.9),
            p_priority=some(0.4, 0.1, 0.6),
            p_restricted=some(0.3, 0.05, 0.5),
            p_resources=some(0.3, 0.05, 0.5),
            p_buffers=some(0.2, 0.1, 0.5),
            client_rate=rng.choice([2.0, 6.0, 20.0]) / time,
            p_release_early=some(0.6, 0.05, 0.7),
            p_cancel=some(0.3, 0.02, 0.3),
            p_force=rng.choice([0.0, 0.5]),
            p_share=some(0.5, 0.1, 0.6),
            p_resubmit=some(0.5, 0.1, 0.8),
            p_fetch=rng.choice([0.2, 0.8]),
            p_bye=some(0.3, 0.1, 0.6),
            p_crash=some(0.2 * faults, 0.1, 0.5),
            lease=rng.choice([0.5, 5.0, 30.0]),
            timing=timing,
            break_rate=some(0.4 * faults, 0.5, 6.0) / time,
            p_half_open=rng.choice([0.0, 0.5]),
            p_fetch_refused=some(0.3 * faults, 0.02, 0.3),
            p_fetch_missing=some(0.3 * faults, 0.02, 0.3),
            kill_rate=some(0.5 * faults, 0.5, 8.0) / time,
            freeze_rate=some(0.2 * faults, 0.5, 3.0) / time,
            leave_rate=some(0.2 * faults, 0.5, 3.0) / time,
            join_rate=some(0.5, 0.5, 4.0) / time,
            p_same_address=rng.choice([0.0, 0.5, 1.0]),
            restart_rate=some(0.12 * faults, 0.3, 1.5) / time,
            blip_rate=some(0.25 * faults, 0.5, 4.0) / time,
            suspend_rate=some(0.06 * faults, 0.3, 1.0) / time,
            p_recorded=rng.choice([0.0, 1.0]),
            p_clock_back=rng.choice([0.0, 0.0, 0.5]),
            away=rng.choice([0.1, 1.0, 5.0]),
            p_release=0.3,
            executes_once=False,
            object_rate=some(0.5, 3.0, 40.0) / time,
            plugin_rate=some(0.4, 2.0, 10.0) / time,
            p_plugin_fails=some(0.3 * faults, 0.02, 0.3),
            copy_rate=some(0.4, 2.0, 15.0) / time,
            read_rate=some(0.3, 3.0, 20.0) / time,
            follow_rate=some(0.3, 5.0, 60.0) / time,
            p_put=rng.choice([0.0, 0.3, 1.0]),
            p_scattered=rng.choice([0.0, 0.0, 0.5, 1.0]),
            p_actor=rng.choice([0.0, 0.0, 0.1, 0.5]),
            p_put_fails=some(0.3 * faults, 0.02, 0.3),
            put_s=rng.choice([0.0, 0.01, 1.0]),
            p_block=some(0.4, 0.05, 0.9),
            allowed_deaths=rng.choice([0, 1, 3]),
            heartbeat=rng.choice([0.5, 2.0]),
            lateness=rng.choice([0.0, 0.001, 0.1]),
            flush_delay=rng.choice([0.0, 0.0, 0.00005, 0.002]),
            chunk_told_after=rng.choice([0.0, 0.001]),
            ride_along=rng.choice([0, 64 << 10, 64 << 10]),
            limits={
                "client.max_tasks": rng.choice([1, 3, 8192]),
                "client.in_flight": rng.choice([1, 256 << 20]),
                "worker.request_keys": rng.choice([1, 2, 4096]),
                "worker.in_flight": rng.choice([1, 256 << 20]),
                "worker.chunk_us": rng.choice([0, 100, 1000]),
                "scheduler.slice": rng.choice([1, 3, 512, 512]),
                "scheduler.idle_functions": rng.choice([0, 1, 64]),
                "scheduler.relayed": rng.choice([0, 100_000, 64 << 20]),
                "worker.many_blocked": rng.choice([0, 1, 200]),
                "scheduler.promised_of": rng.choice([0, 0, 1]),
                "scheduler.promised_ms": rng.choice([5, 1000, 100_000]),
                "scheduler.user_tasks": rng.choice([0, 0, 0, 10, 40]),
            },
            p_calls=some(0.4, 0.02, 0.4),
            p_deep=rng.choice([0.0, 0.3, 0.95]),
            p_shared_calls=rng.choice([0.0, 0.2]),
            p_task_locks=some(0.4, 0.05, 0.5),
            p_interruptible=rng.choice([0.0, 0.5, 1.0]),
            call_rate=some(0.7, 5.0, 60.0) / time,
            actor_timing=Timing(
                latency=timing.latency,
                jitter=timing.jitter,
                p_stall=some(0.4 * faults, 0.02, 0.3),
                stall=rng.choice([0.05, 0.5]),
            ),
            break_actor_rate=some(0.5 * faults, 3.0, 60.0) / time,
            p_call_again=rng.choice([0.0, 0.3]),
            p_task_calls=rng.choice([0.0, 0.5]),
        )
