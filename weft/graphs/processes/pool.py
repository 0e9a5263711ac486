"""Weft's own worker processes: started once, kept warm, used by one run at a time.

It owns their start, the leases of runs, and their end.

**Start.** `subprocess` with a socket handed down, not multiprocessing: a script needs no
``if __name__ == "__main__"``, the user's main module is not imported again, and a worker imports
few modules at its start. Environment, working directory and `sys.path` are as they are in the
parent when a run begins, also for a worker that was started earlier. All workers hash texts alike:
with PYTHONHASHSEED=6640 if the user has set none (dask's choice), for functions that group by hash.

**Between runs.** Workers wait for the next run, and exit after a minute without one. Modules stay
as they were imported: if the parent has reloaded one, new workers are started. If a run ended by an
error, a worker may be busy with a task whose result is no longer needed. That task may go on until
the next run needs the worker; if it is still busy then, it is killed.

**End.** Workers end by `shutdown()`, and at the end of the interpreter. If the parent is killed,
the kernel kills the workers: each has the reading end of a pipe that sends it SIGKILL when the
writing end is closed. (Not PR_SET_PDEATHSIG, which is about the *thread* that started a worker.) On
systems without it, a worker whose socket is closed ends itself, unless a task holds the interpreter
lock.

Ctrl-C in a terminal reaches workers too. They ignore it, because the parent decides; processes that
tasks have started get it as usual.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import mmap
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from ...protocol.errors import WeftError, WorkerStartTimeout
from ...protocol.host.exits import describe_exit
from . import crew, link
from .crew import Crew, Member
from .link import Link
from .own_worker import Context
from .own_worker import __name__ as worker_module
from .reloading import ModuleWatch
from .serving import NO_TASK, note_of
from .sharing import SharedDirectory

logger = logging.getLogger("weft.client")

#: Time that a worker that an earlier run left busy gets before it is killed.
_STALE_S = 0.05
#: Time between SIGTERM or LEAVE and SIGKILL.
_TERMINATE_S = 0.4
_LEAVE_S = 2.0
#: Number of workers that are replaced in one run because they ended before they could work.
_MAX_REPLACED = 2
#: Time in which the first worker must be ready.
_START_S = 120.0
_NOTE_NBYTES = 8

#: The program of a worker. It sets the parent's sys.path, so that it imports the same weft.
_BOOT = """\
import sys
sys.path[:] = sys.argv[2:]
from {module} import main
main(*map(int, sys.argv[1].split(",")))
"""


class WorkerProcess(Member):
    """A worker process that this process has started."""

    def __init__(self, context: Context) -> None:
        with contextlib.ExitStack() as stack:
            ours, theirs = map(stack.enter_context, socket.socketpair())
            lifeline, self._lifeline = os.pipe()
            stack.callback(os.close, lifeline)
            stack.callback(os.close, self._lifeline)
            file = stack.enter_context(tempfile.TemporaryFile())
            file.truncate(_NOTE_NBYTES)
            self._mapping = mmap.mmap(file.fileno(), _NOTE_NBYTES)
            try:
                self._popen = _start((theirs.fileno(), lifeline, file.fileno()), context)
            except OSError as exc:
                raise WeftError(f"no worker process can be started: {exc}") from exc
            # These descriptors stay open.
            ours = socket.socket(fileno=ours.detach())
            self._lifeline = os.dup(self._lifeline)
        note = note_of(self._mapping)
        note[0] = NO_TASK
        super().__init__(Link(ours), self._popen.pid, note)
        #: The context that it was sent last.
        self.context: Context | None = None
        #: The run that it may still be busy with; it sends ENDED when it is not.
        self.stale_run: int | None = None

    def send_begin(self, run_id: int, directory: SharedDirectory, context: Context) -> None:
        """Notify it of a run."""
        told = None if context == self.context else context
        self.context = context
        crew.begin(self, run_id, directory, told and tuple(told))

    def is_free(self, deadline_s: float) -> bool:
        """Return whether it has left earlier runs; wait for that until `deadline_s`, monotonic."""
        while True:
            messages = self.link.receive()
            if messages is None:
                return False
            for message in messages:
                if message == (link.ENDED, self.stale_run):
                    self.stale_run = None
            if messages:
                continue  # the end of the stream may follow: the worker has left
            if self.stale_run is None:
                return True
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                return False
            poll = select.poll()
            poll.register(self.link.fileno(), select.POLLIN)
            poll.poll(max(left_s * 1000, 1))

    @property
    def has_ended(self) -> bool:
        """Return whether the process has ended."""
        return self._popen.poll() is not None

    def wait(self, deadline_s: float) -> int | None:
        """Return the exit code of the process, as Popen does; None if it runs at `deadline_s`."""
        try:
            return self._popen.wait(max(deadline_s - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            return None

    def signal(self, number: int) -> None:
        """Send it a signal, if it has not ended."""
        self._popen.send_signal(number)

    def close(self) -> None:
        """Close its descriptors; the process has ended or is about to end."""
        self.link.close()
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1
            self.note.release()
            self._mapping.close()


def _start(fds: tuple[int, ...], context: Context) -> subprocess.Popen[bytes]:
    args_of = getattr(subprocess, "_args_from_interpreter_flags", list)
    command = [sys.executable, *args_of(), "-c", _BOOT.format(module=worker_module)]
    command += [",".join(map(str, fds)), *context.path]
    return subprocess.Popen(command, pass_fds=fds, stdin=subprocess.DEVNULL, env=context.environ)


def _stop(workers: list[WorkerProcess], number: int | None, limit_s: float) -> None:
    """End processes: by a signal or, if that is None, by LEAVE; by SIGKILL after `limit_s`."""
    for worker in workers:
        if number is None:
            worker.link.send(link.LEAVE)
        else:
            worker.signal(number)
    deadline_s = time.monotonic() + limit_s
    for worker in workers:
        if worker.wait(deadline_s) is None:
            worker.signal(signal.SIGKILL)
            worker.wait(deadline_s + 60)
        worker.close()


class ProcessPool:
    """The pool of worker processes, which leases them to runs. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[WorkerProcess] = []
        #: All workers, those in use too, for the end of the interpreter.
        self._all: dict[WorkerProcess, None] = {}
        #: An empty directory that no run uses, if there is one: making one takes 0.3 ms.
        self._directory: SharedDirectory | None = None
        self._modules = ModuleWatch()
        #: Counts shutdowns: workers from before are not taken back.
        self._age = 0

    def lease(self, n_workers: int, initializer: bytes = b"") -> Crew:
        """Return `n_workers` workers, some of which may still be starting."""
        with self._lock:
            if self._modules.has_changed():
                self._stop_idle()
            directory, self._directory = self._directory, None
        directory = directory or SharedDirectory.create()
        return _Lease(self, self._age, n_workers, directory, initializer)

    def shutdown(self) -> None:
        """End the workers that are not in use, and each of the others after its run."""
        with self._lock:
            self._age += 1
            self._stop_idle()
            if self._directory is not None:
                self._directory.close()
                self._directory = None

    def kill_all(self) -> None:
        """End all workers, also those in use, at once."""
        _stop(list(self._all), signal.SIGKILL, 60)
        self._all.clear()
        self._idle.clear()
        if self._directory is not None:
            self._directory.close()
            self._directory = None

    def forget(self) -> None:
        """Forget all workers in a forked child: they belong to the parent."""
        self._lock = threading.Lock()
        for worker in self._all:
            worker.close()
        # A Popen object that is collected while its process runs would raise a ResourceWarning.
        _foreign.append(self._all)
        self._all, self._idle, self._directory = {}, [], None

    # --- For leases -------------------------------------------------------------------------------

    def take(self, context: Context) -> WorkerProcess:
        """Return an idle worker, or a new one."""
        with self._lock:
            while self._idle:
                worker = self._idle.pop()
                called = worker.context.initializer if worker.context is not None else b""
                # The effect of another initializer cannot be undone.
                is_fit = called in (b"", context.initializer)
                if is_fit and worker.is_free(time.monotonic() + _STALE_S):
                    return worker
                self.kill([worker])
        # Ctrl-C must not reach the worker before it is prepared for that: it inherits the mask, and
        # lifts it. Nor this process before the worker is recorded.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        new: list[WorkerProcess] = []
        try:
            new.append(WorkerProcess(context))
            self._all[new[0]] = None
        finally:
            try:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
            except BaseException:  # the Ctrl-C that came meanwhile
                self.kill(new)
                raise
        return new[0]

    def give_back(
        self, workers: list[WorkerProcess], age: int, directory: SharedDirectory | None
    ) -> None:
        """Take back the workers of a lease."""
        with self._lock:
            if age == self._age:
                self._idle += workers
                workers = []
                if self._directory is None:
                    self._directory, directory = directory, None
        if directory is not None:
            directory.close()
        self.stop(workers)

    def stop(self, workers: list[WorkerProcess]) -> None:
        """End workers that are free, by LEAVE."""
        _stop(workers, None, _LEAVE_S)
        for worker in workers:
            self._all.pop(worker, None)

    def kill(self, workers: list[WorkerProcess]) -> None:
        """End workers within half a second, even if they are busy."""
        _stop(workers, signal.SIGTERM, _TERMINATE_S)
        for worker in workers:
            self._all.pop(worker, None)

    def _stop_idle(self) -> None:
        idle, self._idle = self._idle, []
        # This does not wait for the task of an earlier run.
        busy = [worker for worker in idle if not worker.is_free(0)]
        self.kill(busy)
        self.stop([worker for worker in idle if worker not in busy])


class _Lease(Crew):
    """The workers of the pool that are lent to one run."""

    members: list[WorkerProcess]  # type: ignore[assignment]

    def __init__(
        self,
        pool: ProcessPool,
        age: int,
        n_workers: int,
        directory: SharedDirectory,
        initializer: bytes,
    ) -> None:
        super().__init__(n_workers, directory)
        self._pool = pool
        self._age = age
        self._context = Context.of_this_process(initializer)
        self._n_replaced = 0
        self._run_id = -1
        self._began_s = time.monotonic()
        try:
            for _ in range(n_workers):
                self.add(pool.take(self._context))
        except BaseException:
            self.kill()
            raise

    def begin(self, run_id: int) -> None:
        self._run_id = run_id
        for member in self.members:
            member.send_begin(run_id, self.directory, self._context)

    def check(self) -> list[Member]:
        waited_s = time.monotonic() - self._began_s
        if waited_s > _START_S and all(member.index < 0 for member in self.members):
            raise WorkerStartTimeout(self.n_workers, 0, _START_S)
        return [member for member in self.members if member.has_ended]

    def on_lost(self, member: Member) -> None:
        assert isinstance(member, WorkerProcess)
        self.remove(member)
        _, reason = self.cause_of_death(member)
        self._pool.kill([member])
        if self._n_replaced < _MAX_REPLACED:
            self._n_replaced += 1
            other = self._pool.take(self._context)
            self.add(other)
            other.send_begin(self._run_id, self.directory, self._context)
        elif not self.members:
            raise WeftError(f"no worker process could be started; the last one ended: {reason}")
        else:
            logger.warning("%s ended before it was ready: %s", member.name, reason)

    def cause_of_death(self, member: Member) -> tuple[Member, str]:
        assert isinstance(member, WorkerProcess)
        code = member.wait(time.monotonic() + 1)
        return member, "it closed its connection" if code is None else describe_exit(code)

    def end(self, *, is_clean: bool) -> None:
        kept = []
        gone = []
        for member in list(self.members):
            self.remove(member)
            if member.has_ended or member.link.is_closed:
                gone.append(member)
                continue
            member.link.send(link.END)
            if not is_clean:
                member.stale_run = self._run_id
            kept.append(member)
        self._pool.kill(gone)
        if not is_clean:
            self.directory.close()
        self._pool.give_back(kept, self._age, self.directory if is_clean else None)

    def kill(self) -> None:
        members = list(self.members)
        self.members.clear()
        self._pool.kill(members)
        self.directory.close()


#: Objects that belong to the processes that this one was forked from.
_foreign: list[object] = []

_pool = ProcessPool()
atexit.register(_pool.kill_all)
os.register_at_fork(after_in_child=_pool.forget)


def lease(n_workers: int, initializer: bytes = b"") -> Crew:
    """Return `n_workers` worker processes for one run, warm ones first."""
    return _pool.lease(n_workers, initializer)


def shutdown() -> None:
    """End the worker processes that are kept for later graphs. They are started again when needed.

    Programs need not call this: the workers end with them, or after a minute without work.
    """
    _pool.shutdown()
