"""Notices that processes of a `LocalCluster` ended unexpectedly. Runs in one thread.

Without workers everything waits for ever, so their processes are started again, with a growing
delay after deaths in a row. After too many deaths the scheduler is ended as well, and its clients
get the reason. A scheduler is not started again, because its state of the tasks is lost.

The end of a process is the end of its socket (see child.py), so that nothing is polled.
"""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import threading
import time
from collections.abc import Callable
from typing import Final

from ...protocol.errors import WeftError
from ...protocol.host.exits import describe_exit
from ...protocol.restarting import Restarting
from ..processes.child import Child

_log = logging.getLogger("weft.cluster")

#: Deaths in a row of the workers' family after which it is not started again.
_MAX_DEATHS: Final = 5
#: The workers leave with their scheduler, whose end may be noticed this much later.
_SCHEDULER_LATER_S: Final = 0.2
_FINISH_S: Final = 5.0


class ProcessWatch:
    """Watches one cluster from its start until `stop`.

    Args:
        name: the cluster's, for display.
        scheduler: its process.
        workers: the root of the workers' processes.
        start_workers: starts that anew; called in the watching thread. Returns None when the
            cluster is being closed.
        on_failed: called with the reason when the cluster cannot be used any more.
    """

    def __init__(
        self,
        name: str,
        scheduler: Child,
        workers: Child,
        start_workers: Callable[[], Child | None],
        on_failed: Callable[[str], None],
    ) -> None:
        self._name = name
        self._scheduler = scheduler
        self._workers: Child | None = workers
        self._start_workers = start_workers
        self._on_failed = on_failed
        self._restarting = Restarting()
        self._started = time.monotonic()
        self._told, self._teller = socket.socketpair()
        self.stopping = False
        self._thread = threading.Thread(target=self._run, name="weft-cluster-watch", daemon=True)
        self._thread.start()

    def tell_to_stop(self) -> None:
        """Expect every end of a process from now on."""
        self.stopping = True
        with contextlib.suppress(OSError):
            self._teller.shutdown(socket.SHUT_WR)

    def stop(self) -> None:
        """End the thread. A start of workers that is under way must have been ended before."""
        self.tell_to_stop()
        self._thread.join()
        self._teller.close()
        self._told.close()

    def _run(self) -> None:
        while not self.stopping:
            ended = self._wait_end(None)
            if ended is None:
                return
            if ended is self._scheduler:
                self._on_scheduler_ended()
                return
            self._on_workers_ended(ended)

    def _wait_end(self, timeout_s: float | None) -> Child | None:
        """Return a process that has ended, the scheduler's first; None = none, or `stop`."""
        poll = select.poll()
        poll.register(self._told, select.POLLIN)
        children = [child for child in (self._scheduler, self._workers) if child is not None]
        for child in children:
            poll.register(child.socket, select.POLLIN)
        ready = dict(poll.poll(None if timeout_s is None else timeout_s * 1000))
        if self.stopping or self._told.fileno() in ready:
            return None
        # A child that runs sends nothing more, so readable data is the end of the stream.
        return next((child for child in children if child.socket.fileno() in ready), None)

    def _on_scheduler_ended(self) -> None:
        code = self._scheduler.finish(_FINISH_S)
        if code == 0:
            _log.info("the scheduler of %s has ended on request", self._name)
            return
        _log.error(
            "the scheduler process of %s ended unexpectedly (%s); the cluster is lost, with all "
            "results that it had",
            self._name,
            describe_exit(code),
            extra={"code": "scheduler-lost"},
        )

    def _on_workers_ended(self, workers: Child) -> None:
        self._workers = None
        how = _describe_family(workers.finish(_FINISH_S))
        failure = workers.read_failure()
        if failure:  # which the next start would meet as well
            self._give_up(failure)
            return
        is_told = workers.process.returncode == 0
        while True:
            pause_s = self._restarting.died(time.monotonic() - self._started)
            if self._wait_end(max(pause_s, _SCHEDULER_LATER_S)) is not None or self.stopping:
                return  # the scheduler ended, which the next look sees as well
            if is_told:
                _log.warning(
                    "the workers of %s have ended on request; it has none",
                    self._name,
                    extra={"code": "workers-ended"},
                )
                return
            n = self._restarting.n_deaths
            if n > _MAX_DEATHS:
                self._give_up(f"its worker processes ended {n} times, the last time: {how}")
                return
            _log.error(
                "the worker processes of %s ended unexpectedly (%s); they are started again",
                self._name,
                how,
                extra={"code": "workers-restarted"},
            )
            self._started = time.monotonic()
            try:
                self._workers = self._start_workers()
                return
            except WeftError as error:
                how = str(error)

    def _give_up(self, text: str) -> None:
        _log.error(
            "the cluster %s is given up: %s", self._name, text, extra={"code": "cluster-given-up"}
        )
        # The reason is set before the end, after which the clients ask for it.
        self._on_failed(text)
        self._scheduler.finish(_FINISH_S)
        self.stopping = True


def _describe_family(code: int) -> str:
    """Describe the family's end; its spawner exits with 128 + the supervisor's signal."""
    if code > 128:
        return f"their supervisor was {describe_exit(128 - code)}"
    return describe_exit(code)
