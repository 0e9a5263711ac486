"""The configuration with which a worker starts."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from types import ModuleType
from typing import Any

from ..protocol.reported import SPILLS, TIME_LEFT
from ..protocol.trust.security import Security, is_loopback
from ..protocol.wire.address import Address, parse_address
from .policy import Fractions, Isolation


def socket_path(scheduler: str, worker_id: str) -> Path:
    """Return where a worker listens whose scheduler listens at the socket `scheduler`.

    That folder is private, and paths of sockets must be short.
    """
    return Path(scheduler).parent / f"weft-worker-{worker_id[:12]}.sock"


def spill_folder(directory: Path, worker_id: str) -> Path:
    """Return where a worker keeps the files of values that do not fit into its memory."""
    return directory / f"weft-{worker_id}.spill"


def scratch_folder(directory: Path, worker_id: str) -> Path:
    """Return where the programs that a worker's tasks run have their folders."""
    return directory / f"weft-{worker_id}.scratch"


@dataclass(kw_only=True)
class WorkerConfig:
    """The scheduler's address, and the name, port and limits of this worker.

    Args:
        scheduler: the scheduler's address.
        security: the cluster's secret; with certificate and key for a `tls://` data port, or the
            worker makes a certificate of its own.
        name: for display; "" = the address.
        nthreads: number of tasks that run at the same time, >= 1.
        memory_limit: bytes; 0 = none.
        fractions: the parts of it above which something is done.
        spill_directory: gets a folder for values that do not fit into memory; None = they stay.
        max_spill: bytes there.
        resources: {name: amount} that tasks may ask for.
        local_directory: for files of this worker, as `get_worker().local_directory`; None = none.
        listen_address: the data port; "" = of the scheduler's kind, where the scheduler's network
            reaches it, on any free port.
        port: of the data port where `listen_address` is not given; 0 = any free one.
        contact_host: where others reach the data port; "" = where it listens.
        find: called at each attempt to connect instead of looking at `scheduler` and `security`;
            returns addresses to try and the secret, from a connection file for instance.
        supervisor_id: of the process that watches this one, "" = none.
        worker_id: identifies this process; no other process ever has it.
        reconnect: come back when the scheduler is lost; otherwise `run` returns then.
        started_path: file in which to note the attempts being executed, for the supervisor.
        metrics_url: of the page that shows the numbers of this worker, which it writes beside
            `started_path` then; "" = the scheduler sums them.
        stop_timeout_s: time that running tasks get to end when the worker stops.
        grace_period_s: time that running tasks get to end when the worker leaves after SIGTERM.
        tasks_end_at: when its tasks will have to have ended, by `time.monotonic`; None = not known.
        catches_output: send what tasks print and log to clients that want it; only for a process
            that has no other worker.
        keeps_output: write that to the process's own stdout and stderr as well.
        preloaded: modules whose functions `weft_setup` and `weft_teardown` are called with the
            worker, before it first connects and at its end.
        isolation: how tasks run in child processes of the worker; None = in its threads.
        orphan_lease_s: time for which a worker that has lost its scheduler keeps its data and looks
            for a scheduler; it should exceed the time for which clients look for one.
    """

    scheduler: str
    security: Security
    name: str = ""
    nthreads: int = 1
    memory_limit: int = 0
    fractions: Fractions = field(default_factory=Fractions)
    spill_directory: Path | None = None
    max_spill: float = inf
    resources: dict[str, float] = field(default_factory=dict)
    local_directory: Path | None = None
    listen_address: str = ""
    port: int = 0
    contact_host: str = ""
    find: Callable[[], tuple[Sequence[str], Security]] | None = None
    supervisor_id: str = ""
    worker_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    reconnect: bool = True
    started_path: Path | None = None
    metrics_url: str = ""
    stop_timeout_s: float = 2.0
    grace_period_s: float = 0.0
    tasks_end_at: float | None = None
    orphan_lease_s: float = 900.0
    catches_output: bool = False
    keeps_output: bool = True
    preloaded: Sequence[ModuleType] = ()
    isolation: Isolation | None = None

    @property
    def spills(self) -> bool:
        """Whether values are written to disk when memory is short."""
        has_limit = self.memory_limit and (self.fractions.target or self.fractions.spill)
        return bool(has_limit) and self.spill_directory is not None

    def facts(self) -> dict[str, Any]:
        """Return what the worker reports of this when it registers."""
        facts: dict[str, Any] = {SPILLS: self.spills}
        if self.tasks_end_at is not None:
            facts[TIME_LEFT] = max(self.tasks_end_at - time.monotonic(), 0.0)
        return facts

    def data_address(self, scheduler_address: str, own_host: str) -> str:
        """Decide where to listen for peers and clients.

        Args:
            scheduler_address: where the scheduler was found.
            own_host: the address of this machine from which the scheduler is reached.
        """
        if self.listen_address:
            return self.listen_address
        scheduler = parse_address(scheduler_address)
        if scheduler.scheme == "inproc":
            return f"inproc://worker-{self.worker_id}"
        if scheduler.scheme == "unix":
            return f"unix://{socket_path(scheduler.host, self.worker_id)}"
        host = scheduler.host if is_loopback(scheduler.host) else own_host
        return str(
            Address(scheduler.scheme, "127.0.0.1" if host == "localhost" else host, self.port)
        )

    def contact_address(self, listening: str) -> str:
        """Return the address at which others reach the data port that listens at `listening`."""
        address = parse_address(listening)
        if not self.contact_host or not address.is_tcp:
            return listening
        return str(address._replace(host=self.contact_host))
