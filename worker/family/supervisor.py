"""The supervisor: starts worker processes, watches them, reports why they died, and restarts them.

It runs no user code and holds no data, so it answers at once whatever its workers do (its plugins
run in a process of their own, see `hosting`). Therefore its
heartbeats decide whether the scheduler counts a worker as alive: a worker whose task holds the
interpreter lock for minutes is busy, not dead.

What it does (`restarts` decides what follows from the end of a worker, and from a signal):

- A worker that ended, or could not be started, is started again, under a new id; after deaths in a
  row with a growing delay.
  One that ended by itself with code 0 while it ran nothing was asked to leave, and is not started
  again. A worker that exits because of its configuration (`EXIT_CONFIG`), or because the scheduler
  refuses it for good (`EXIT_REFUSED`), stops the supervisor: a restart would fail the same way.
  So do equal deaths in a row at every place, if no worker has ever been registered.
- A worker above 95 % of its memory limit is killed, before the kernel chooses a process. The
  exit is reported with that reason, and with the attempts that were running or being served.
- A worker that does nothing at all for a minute is reported with its stacks, see `silence`.
- `Stop` from the scheduler, SIGINT or SIGTERM, or (embedded) the loss of the client or scheduler
  ends everything: a signal to the workers, SIGKILL after some seconds, exit code 0. After SIGTERM
  the workers may finish what they run, within the grace period; a second signal ends all at once.
- A lost scheduler is looked for again, with back-off, for ever; workers do the same.

The spawner (spawn.py) forks; this process only sends it requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shutil
import signal
import socket
import time
import uuid
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final

import psutil

from ...protocol.errors import ConfigError, InternalError
from ...protocol.host.exits import EXIT_NO_SCHEDULER
from ...protocol.net.deadline import within
from ...protocol.reported import REQUESTED
from ...protocol.trust.security import Security
from ...protocol.wire.session import GiveUp
from ..measuring.numbers import SUFFIX, SUPERVISOR
from ..slots.silence import SilenceWatch
from ..slots.started import read_children_nbytes, read_joined
from .config import SupervisorConfig
from .death_lines import DeathLines
from .exits import ask_because
from .lifetimes import Lifetimes
from .measuring import FamilyMeter
from .oom_kills import OomClaims, mark_of
from .places import CannotScale, Growth, Place
from .plugin_link import SupervisorPlugins
from .restarts import (
    Ending,
    Outcome,
    Retire,
    StopFamily,
    WorkerExit,
    after_request,
    give_up,
    judge,
    kind_of,
    memory_verdict,
)
from .silent_workers import held_up, look_at_silence
from .spawn import send_with_channel
from .stalled import HeldUpWatch
from .supervisor_link import SupervisorLink, SupervisorPolicy
from .worker_ends import exit_of, folders_of, remove_files

_log = logging.getLogger("weft.supervisor")

_CHECK_S: Final = 0.1
#: The longest pause between two looks at the workers' beats.
_MAX_LOOK_S: Final = 3.0


class Supervisor:
    """The supervisor of this process; `await run()` runs it until its end."""

    def __init__(
        self,
        config: SupervisorConfig,
        commands: socket.socket,
        *,
        lifeline: socket.socket | None = None,
        on_started: Callable[[], None] | None = None,
    ) -> None:
        """Prepare; `run` does the work.

        Args:
            config: its configuration.
            commands: the spawner's other end.
            lifeline: its end of file, when the embedding process closes it or ends, means to stop.
            on_started: called once, when all workers were requested.
        """
        self.config = config
        self.supervisor_id = uuid.uuid4().hex
        self._commands = commands
        self._lifeline = lifeline
        self._on_started = on_started
        self._places = [Place(spec) for spec in config.workers]
        self._growth = Growth(config.workers, config.first)
        #: {worker_id: its place} of every worker that was requested and has not ended
        self._running: dict[str, Place] = {}
        #: {pid: its place} of those that the spawner has forked
        self._by_pid: dict[int, Place] = {}
        self._restarts: dict[int, asyncio.TimerHandle] = {}
        #: what runs beside `run`
        self._tasks: set[asyncio.Task[None]] = set()
        #: {id(place): place} of those whose workers are started when plugins are set up
        self._held_back: dict[int, Place] = {}
        self._death_lines = DeathLines()
        #: The signal that workers are ended with; 0 while they are not being ended.
        self._end_signal = 0
        self._exit_code = 0
        #: Why a worker cannot join, and would not the next time; "" = no worker was refused.
        self._refusal = ""
        self._ending = Ending(config.grace_s, config.grace_period_s)
        self._lifetimes = Lifetimes(
            config.lifetime, config.grace_s + config.grace_period_s, self._kill_one
        )
        self._owns_directory = config.owns_directory
        self._known: tuple[Sequence[str], Security] = config.find()
        self._meter = FamilyMeter()
        self._claims = OomClaims()
        if config.metrics_url:
            self._meter.write_to(Path(config.directory, SUPERVISOR + SUFFIX))

    async def run(self) -> int:
        """Watch the workers until the order to stop; return the exit code of the process.

        Raises:
            WeftError: the scheduler refuses this process, or (at first) cannot be found or reached;
                or (embedded) a worker cannot be started.
        """
        self._loop = asyncio.get_running_loop()
        self._stop_asked: asyncio.Future[str] = self._loop.create_future()
        self._all_ended = asyncio.Event()
        like = self.config.workers[-1] if self.config.workers else self.config.first
        self._plugins = SupervisorPlugins(
            self, self.supervisor_id, self.config.directory, like.options if like else {}
        )
        self._link = SupervisorLink(
            self.supervisor_id,
            self._find,
            SupervisorPolicy(
                first_s=self.config.connect_timeout_s,
                again_s=self.config.orphan_lease_s,
                is_embedded=self.config.embedded,
            ),
            measure=lambda: self._meter.measure(self._processes(), self._children()),
            held_up=lambda: held_up(self._running.values(), time.monotonic()),
            metrics_url=self.config.metrics_url,
            on_stop=lambda reason: self.stop(f"the scheduler requested it: {reason}"),
            on_scale=self.scale,
            on_retired=self._on_retired,
            on_end=self._on_end,
            on_plugin=self._plugins.on_order,
            on_over=self._on_link_over,
        )
        reader, self._writer = await asyncio.open_connection(sock=self._commands)
        self.accompany(self._hear_spawner(reader))
        if self._lifeline is not None:
            self.accompany(self._watch_lifeline(self._lifeline))
        try:
            self._link.start()
            if self.config.accompany is not None:
                self.accompany(self.config.accompany())
            if not self.config.embedded:
                await self._link.first(self._stop_asked)
            if not self._stop_asked.done():
                for place in self._places:
                    if not place.worker_id:
                        self._start(place)
                if self._on_started is not None:
                    self._on_started()
                self.accompany(self._watch_memory())
                self.accompany(self._watch_silence())
            reason = await self._stop_asked
            _log.info("supervisor stops: %s", reason)
            self._link.stay_away()
            await self._stop_workers()
            await self._plugins.close(self._ending.patience_s())
            await self._link.leave(reason)
        finally:
            self._death_lines.finish(time.monotonic())
            self._plugins.abort()
            tasks = [*self._tasks]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._lifetimes.close()
            self._link.abort()
            self._meter.close()
            self._writer.close()
            if self._owns_directory:
                shutil.rmtree(self.config.directory, ignore_errors=True)
        if self._refusal and self.config.embedded:  # the owner reports it
            raise ConfigError(f"a worker cannot be started: {self._refusal}")
        return self._exit_code

    def stop(self, reason: str, exit_code: int = 0) -> None:
        """End everything, in order. The first reason counts."""
        if not self._stop_asked.done():
            self._exit_code = exit_code
            self._stop_asked.set_result(reason)

    def scale(self, n: int | None) -> list[str]:
        """Have places for `n` workers; return their names. None = as many as there are.

        If there are more, only workers that have not joined the cluster are given up: the scheduler
        retires the others.

        Raises:
            CannotScale: there cannot be so many.
        """
        if self._stop_asked.done():
            raise CannotScale("its workers are being stopped")
        n_more = 0 if n is None else n - len(self._places)
        for spec in self._growth.more(len(self._places), n_more):
            self._places.append(Place(spec))
            self._start(self._places[-1])
        if n_more < 0:
            waiting = [
                place for place in self._places if not (place.pid and read_joined(place.record))
            ]
            for place in waiting[n_more:]:
                self._give_up(place)
        return [place.spec.name for place in self._places]

    def _on_retired(self, worker_ids: list[str]) -> None:
        """Drop the places of workers that leave, before their processes end."""
        for worker_id in worker_ids:
            place = self._running.get(worker_id)
            if place is not None and not place.retired:
                self._retire(place)

    def _on_end(self, worker_ids: list[str], reason: str) -> None:
        """End the processes of workers at once; others are started in their places."""
        for worker_id in worker_ids:
            place = self._running.get(worker_id)
            if place is not None and not place.retired and not place.ended_for:
                place.ended_for = reason
                if place.pid:
                    self._ask("kill", place.pid, int(signal.SIGKILL))

    def _retire(self, place: Place) -> None:
        place.retired = True
        place.asked = place.asked or "it was asked to leave"
        self._places.remove(place)
        _log.info("worker %s ends on request", place.spec.name)

    def _give_up(self, place: Place) -> None:
        """End the worker of a place before it has joined, and start no other."""
        self._retire(place)
        timer = self._restarts.pop(id(place), None)
        if timer is not None:
            timer.cancel()
        if place.pid:
            self._ask("kill", place.pid, int(signal.SIGTERM))

    def accompany(self, life: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine beside the supervisor; its failure is a bug that ends this process."""
        task = self._loop.create_task(life)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_ended)
        return task

    def _on_task_ended(self, task: asyncio.Task[None]) -> None:
        # A background task died; without it the supervisor would never stop, so stop now. Nothing
        # is waited for: the spawner kills the workers when this process has ended.
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            text = "a bug of weft ends the supervisor"
            _log.error(text, exc_info=error, extra={"code": "internal-error"})
            self._forget_workers()
            self.stop("a bug of weft", 1)

    def _forget_workers(self) -> None:
        self._plugins.abort()
        self._running.clear()
        self._by_pid.clear()
        self._all_ended.set()

    @property
    def _stopping(self) -> bool:
        return self._end_signal != 0

    # --- The spawner ----------------------------------------------------------------------------

    def _ask(self, *what: object) -> None:
        self._writer.write(json.dumps(what).encode() + b"\n")

    async def _hear_spawner(self, reader: asyncio.StreamReader) -> None:
        # A reset instead of the end: the spawner died with something unread.
        with contextlib.suppress(ConnectionError):
            while (line := await reader.readline()).endswith(b"\n"):
                kind, *rest = json.loads(line)
                if self._plugins.takes(kind, rest):
                    continue
                if kind == "started":
                    self._on_started_worker(*rest)
                elif kind == "failed":
                    self._on_failed_start(*rest)
                elif kind == "exited":
                    self._on_exited(*rest)
                else:
                    is_urgent = self._ending.on_signal(rest[0])
                    self.stop(signal.Signals(rest[0]).name)
                    if is_urgent:
                        self._kill_all(signal.SIGKILL)
        # The spawner is gone, and the kernel has killed its workers. The embedding process starts
        # others in the same directory, where the scheduler's socket is, too.
        if self.config.embedded:
            self._owns_directory = False
        self._forget_workers()
        self.stop("the spawner process is gone", 1)

    async def _watch_lifeline(self, lifeline: socket.socket) -> None:
        lifeline.setblocking(False)
        with contextlib.suppress(ConnectionResetError):
            while await self._loop.sock_recv(lifeline, 4096):
                continue
        self.stop("the owner of this cluster has closed it, or is gone")

    def _start(self, place: Place) -> None:
        self._restarts.pop(id(place), None)
        if self._plugins.is_holding:
            self._held_back[id(place)] = place
            return
        place.worker_id = uuid.uuid4().hex
        place.verdict = place.ended_for = place.asked = ""
        place.pid = 0
        place.started = time.monotonic()
        place.record = Path(self.config.directory, f"{place.worker_id}.started")
        place.silence = SilenceWatch(self.config.silent_after_s)
        place.held_up = HeldUpWatch()
        self._running[place.worker_id] = place
        # The last known address is enough: a worker looks the scheduler up itself if it moved.
        addresses, security = self._find()
        self._plugins.on_worker_started(place.worker_id)
        options = place.spec.options
        environment = {**options.get("environment", {}), **self._plugins.environment}
        lifetime_s = self._lifetimes.seconds_of(place.worker_id)
        if lifetime_s is not None:
            ends_at = place.started + lifetime_s + self.config.grace_period_s
            options = {**options, "tasks_end_at": ends_at}
        self._ask(
            "start",
            {
                "worker_id": place.worker_id,
                "name": place.spec.name,
                "memory_limit": place.spec.memory_limit,
                "supervisor_id": self.supervisor_id,
                "started_path": str(place.record),
                "scheduler_addresses": list(addresses),
                "security": security.to_plain(),
                **options,
                "environment": environment,
            },
        )

    def _find(self) -> tuple[Sequence[str], Security]:
        """Return the scheduler's address, the last one if its connection file was removed."""
        with contextlib.suppress(ConfigError):
            self._known = self.config.find()
        return self._known

    def _on_started_worker(self, worker_id: str, pid: int) -> None:
        place = self._running[worker_id]
        place.pid = pid
        # It may have ended already: then the spawner's next line reports it.
        with contextlib.suppress(psutil.NoSuchProcess):
            place.process = psutil.Process(pid)
        place.oom = mark_of(pid)
        self._by_pid[pid] = place
        self._meter.note_start()
        if self._stopping or place.retired:
            self._ask("kill", pid, self._end_signal or int(signal.SIGTERM))
        elif place.ended_for:
            self._ask("kill", pid, int(signal.SIGKILL))
        else:
            self._lifetimes.begin(worker_id, place.spec.name)

    def _kill_one(self, worker_id: str, number: int) -> None:
        self._end_one(self._running[worker_id], number, "its lifetime is over")

    def _end_one(self, place: Place, number: int, why: str) -> None:
        """Send a worker a signal to leave, and the reason, or end it because it has not left."""
        place.asked = place.asked or why
        if number != signal.SIGKILL:
            ask_because(place.record, place.asked)
        self._ask("kill", place.pid, int(number))

    def _on_exited(self, pid: int, status: int, peak_nbytes: int = 0) -> None:
        place = self._by_pid.pop(pid)
        del self._running[place.worker_id]
        place.pid = 0
        place.process = None
        code, is_embedded = os.waitstatus_to_exitcode(status), self.config.embedded
        ended = exit_of(place, code, peak_nbytes, self._claims, is_embedded=is_embedded)
        remove_files(place, self._known[0])
        for folder in folders_of(place):
            self._loop.run_in_executor(None, shutil.rmtree, folder, True)
        is_over = self._lifetimes.end(place.worker_id)
        if not self._stopping and place.asked and (how := after_request(place.asked, ended)):
            self._link.report_exit(place.worker_id, how, [], REQUESTED, ended.facts)
        if not self._stopping and place.retired:
            self._on_place_gone()
        elif not self._stopping and is_over and self._lifetimes.restart:
            self._start_later(place, 0.0)
        elif not self._stopping and place.ended_for:
            # No task is at fault, and so none is named.
            self._link.report_exit(place.worker_id, place.ended_for, [], REQUESTED)
            _log.info("worker %s is started again: %s", place.spec.name, place.ended_for)
            self._start_later(place, 0.0)
        elif not self._stopping:
            outcome = Retire() if is_over else judge(ended, place.restarting)
            self._follow(place, ended, outcome)
        if not self._running:
            self._all_ended.set()
        self._plugins.on_worker_ended(place.worker_id)

    def _follow(self, place: Place, ended: WorkerExit, outcome: Outcome) -> None:
        name = place.spec.name
        if isinstance(outcome, Retire):
            self._retire(place)
            self._on_place_gone()
        elif isinstance(outcome, StopFamily):
            # Logged once for the whole family: all its workers are refused for the same reason.
            if outcome.refusal and not self._stop_asked.done():
                self._refusal = outcome.refusal
                level = logging.INFO if self.config.embedded else logging.ERROR
                text = "worker %s cannot join: %s"
                _log.log(level, text, name, outcome.refusal, extra={"code": "worker-not-joined"})
            self.stop(f"worker {name} {outcome.because}", outcome.exit_code)
        else:
            attempts = ended.running + ended.served
            kind = kind_of(ended)
            if kind != REQUESTED:
                self._meter.note_death(kind)
            self._link.report_exit(place.worker_id, outcome.reason, attempts, kind, ended.facts)
            # An embedded scheduler logs each report to the same terminal.
            quiet = kind == REQUESTED or (self.config.embedded and self._link.connected)
            self._death_lines.note_death(
                place, outcome.reason, ended.lived_s, outcome.pause_s, time.monotonic(), quiet=quiet
            )
            if end := self._hopeless():
                self._follow(place, ended, end)
                return
            self._start_later(place, outcome.pause_s)

    def _on_place_gone(self) -> None:
        # A family that a program has started may get workers again; another one has ended.
        if not self._running and not self._places and not self.config.embedded:
            self.stop("all workers have ended on request")

    def _hopeless(self) -> StopFamily | None:
        for place in self._by_pid.values():
            place.restarting.was_ready |= read_joined(place.record)
        return give_up([place.restarting for place in self._places])

    def _on_failed_start(self, worker_id: str, why: str) -> None:
        place = self._running.pop(worker_id)
        if not self._stopping and not place.retired:
            delay_s = place.restarting.died(0.0, by_start=False)
            self._death_lines.note_failed_start(place, why, delay_s, time.monotonic())
            self._start_later(place, delay_s)
        if not self._running:
            self._all_ended.set()
        self._plugins.on_worker_ended(worker_id)

    def _start_later(self, place: Place, delay_s: float) -> None:
        self._restarts[id(place)] = self._loop.call_later(delay_s, self._start, place)

    async def _stop_workers(self) -> None:
        for timer in self._restarts.values():
            timer.cancel()
        self._lifetimes.close()
        if not self._stopping:
            self._kill_all(self._ending.first_signal())
        if not self._running:
            return
        self._all_ended.clear()
        try:
            await within(self._ending.patience_s(), self._all_ended.wait())
        except TimeoutError:
            self._kill_all(signal.SIGKILL)
            await self._all_ended.wait()

    def _kill_all(self, number: int) -> None:
        self._end_signal = int(number)  # also for those that are being started
        for place in self._by_pid.values():
            if not self._lifetimes.has_sent(place.worker_id, number):
                self._end_one(place, number, f"its supervisor stops: {self._stop_asked.result()}")

    # --- Plugins (`plugin_link` calls these) ------------------------------------------------------

    def ask_for_host(self, config: dict[str, Any], channel: socket.socket) -> bool:
        """Ask the spawner to start the host; False if it cannot be asked at the moment."""
        return send_with_channel(self._commands, self._writer, ["start", config], channel)

    def kill(self, pid: int) -> None:
        """Ask the spawner to end a process at once."""
        self._ask("kill", pid, int(signal.SIGKILL))

    def end_workers(self, reason: str) -> None:
        """End the processes of all workers; others are started in their places."""
        self._on_end([*self._running], reason)

    def release_workers(self) -> None:
        """Start the workers that were held back."""
        held_back, self._held_back = self._held_back, {}
        for place in held_back.values():
            if place in self._places and not self._stop_asked.done():
                self._start(place)

    # --- What is watched ------------------------------------------------------------------------

    def _processes(self) -> dict[str, psutil.Process]:
        places = self._by_pid.values()
        return {place.worker_id: place.process for place in places if place.process is not None}

    def _children(self) -> dict[str, int]:
        """Return the memory of the children of each worker, which holds them to its limit."""
        places = self._by_pid.values()
        return {place.worker_id: read_children_nbytes(place.record) for place in places}

    async def _watch_memory(self) -> None:
        if {place.spec.memory_limit for place in self._places} == {0}:
            return
        while True:
            await asyncio.sleep(_CHECK_S)
            for worker_id, rss in self._meter.rss(self._processes()).items():
                place = self._running[worker_id]
                verdict = memory_verdict(rss, place.spec.memory_limit, place.spec.terminate)
                if verdict and not place.verdict:
                    place.verdict = verdict
                    self._ask("kill", place.pid, int(signal.SIGKILL))

    async def _watch_silence(self) -> None:
        pause_s = min(self.config.silent_after_s / 20, _MAX_LOOK_S)
        last = time.monotonic()
        while True:
            await asyncio.sleep(pause_s)
            now = time.monotonic()
            self._meter.write(self._processes(), self._children())
            self._death_lines.log_due(now)
            # If this process itself was held up, the time counts as at most two pauses.
            elapsed_s, last = min(now - last, 2 * pause_s), now
            for place in list(self._by_pid.values()):
                await look_at_silence(place, elapsed_s, self._ask)

    # --- The scheduler --------------------------------------------------------------------------

    def _on_link_over(self, end: GiveUp) -> None:
        lost = end.outage.error
        if isinstance(end.error, InternalError):
            self._forget_workers()
            self.stop("a bug of weft", 1)
        elif self.config.embedded and lost is not None:
            self.stop(f"the scheduler is gone: {lost}")
        elif self.config.embedded:
            self.stop(f"the scheduler cannot be reached: {end.error}", 1)
        elif lost is not None and not end.is_final and not self._stop_asked.done():
            _log.error(
                "the workers end, and their results with them: no scheduler has come back within "
                "%g s (%s)",
                self.config.orphan_lease_s,
                end.error,
                extra={"code": "workers-orphaned"},
            )
            self.stop("no scheduler has come back", EXIT_NO_SCHEDULER)


def supervise(
    config: SupervisorConfig,
    commands: socket.socket,
    *,
    lifeline: socket.socket | None = None,
    on_started: Callable[[], None] | None = None,
) -> int:
    """Be the supervisor process; return its exit code. For `spawn.run`.

    Raises:
        WeftError: see `Supervisor.run`.
    """
    return asyncio.run(Supervisor(config, commands, lifeline=lifeline, on_started=on_started).run())
