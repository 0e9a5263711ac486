"""`weft worker`: finds the scheduler, and runs the workers of this machine."""

from __future__ import annotations

import os
import shutil
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from ...protocol.errors import ConnectTimeout
from ...protocol.settings import common
from ...protocol.settings import worker as table
from ...protocol.settings.setting import Setting, settings_in
from .group import Chosen, fail, scheduler_options, start_log, weft
from .options import from_table, merged

if TYPE_CHECKING:
    from ...protocol.settings.sources import Settings
    from ...protocol.trust.security import Security
    from ...worker.family.config import SupervisorConfig
    from ..workers.family_page import FamilyPage

#: The settings of the command, in the order of its help.
SETTINGS: Final = (*settings_in(table), common.LOG_LEVEL, common.LOG_FORMAT)


@weft.command(short_help="Run workers for a scheduler, until Ctrl-C or until it stops.")
@scheduler_options
@from_table(*SETTINGS)
def worker(chosen: Chosen, **options: Any) -> None:
    """Run workers for the scheduler at ADDRESS, until Ctrl-C or a client's shutdown().

    They outlive their scheduler: when it ends, they keep their results, go on with their tasks,
    and wait for the next one at the same place.

    ADDRESS is tcp://host:port, tls://host:port, host:port or unix:///path; by default it is read
    from the connection file. The token comes from the connection file, or from the file that
    $WEFT_TOKEN_FILE names; one of role worker is enough, as 'weft token --role worker' writes it,
    and with any other the workers have no more rights than with that.

    A supervisor process watches the workers, restarts those that die, and reports why. Set
    OMP_NUM_THREADS and the like yourself if tasks should use more than one core each; they are 1
    where unset.

    \b
    Examples:
      weft worker
      weft worker tls://node1:8786 --connection-file worker.json --nthreads 4
      weft worker --nworkers 2 --memory-limit 8GB --resources 'GPU=1'

    Exit codes: 0 = ended on request, 1 = failed, 2 = wrong options or configuration, 69 = no
    scheduler was found or answered within --connect-timeout, or came back within --orphan-lease,
    77 = the scheduler refuses these workers for good (their token is of another cluster, or they
    run another minor version of Python, for instance).

    Each option can be given by a file or the environment as well; see 'weft config worker'.
    """
    from ...protocol.trust import finding
    from ...protocol.wire.levels import Level
    from ..processes.preloading import module_names
    from ..settings import decide_counts, make_local_directory, parse_memory_limit
    from ..workers.data_places import DataPlaces
    from ..workers.spilling import isolate_option, memory_fractions, spill_options

    given = merged(SETTINGS, options)
    start_log(given)
    counts = decide_counts(_n_workers(given), given[table.NTHREADS])
    limit = parse_memory_limit(given[table.MEMORY_LIMIT], counts, given.name_of(table.MEMORY_LIMIT))
    memory_fractions(given)  # wrong ones are found before anything is waited for
    connect_timeout = _patience(given, table.CONNECT_TIMEOUT)
    orphan_lease = _patience(given, table.ORPHAN_LEASE)
    places = DataPlaces.of(given, counts.n_workers)

    def find() -> tuple[tuple[str, ...], Security]:
        found = finding.find(*chosen, os.environ)
        found.demand(Level.WORKER, "a worker")
        # Code of users runs in workers: they get no token that can do more.
        return found.addresses, found.to_security().lowered(Level.WORKER)

    scheduler_address = _wait_for_scheduler(chosen, connect_timeout)

    from ...worker.family.config import SupervisorConfig, WorkerSpec
    from ...worker.family.lifetimes import Lifetime

    name = given[table.NAME] or socket.gethostname()
    local_directory = given[table.LOCAL_DIRECTORY]
    directory = make_local_directory(local_directory, given.name_of(table.LOCAL_DIRECTORY))
    grace_period, lifetime = given[table.GRACE_PERIOD], given[table.LIFETIME]
    options = {
        "nthreads": counts.nthreads,
        "resources": given[table.RESOURCES],
        "local_directory": directory,
        "temporary_directory": "" if local_directory is None else directory,
        **spill_options(given, directory, is_named=local_directory is not None),
        "isolate": isolate_option(given, is_on=given[table.ISOLATE]),
        "preload": module_names(given[table.PRELOAD]),
        "grace_period_s": grace_period,
        "orphan_lease_s": orphan_lease,
    }
    numbered = counts.n_workers > 1
    _run_workers(
        SupervisorConfig(
            find=find,
            workers=[
                WorkerSpec(
                    f"{name}-{i}" if numbered else name,
                    limit,
                    {**options, **places.of_worker(i, scheduler_address)},
                )
                for i in range(counts.n_workers)
            ],
            directory=directory,
            owns_directory=True,
            connect_timeout_s=connect_timeout,
            grace_period_s=grace_period,
            orphan_lease_s=orphan_lease,
            lifetime=None
            if lifetime is None
            else Lifetime(lifetime, given[table.LIFETIME_STAGGER], given[table.LIFETIME_RESTART]),
        ),
        scheduler_address,
        given[table.PID_FILE],
        _metrics_page(given, directory, find()[1]),
    )


def _n_workers(given: Settings) -> int | None:
    from ...protocol.host.machine import n_cores

    asked = given[table.NWORKERS]
    return asked if asked is None or asked > 0 else max(1, n_cores() + 1 + asked)


def _wait_for_scheduler(chosen: Chosen, timeout_s: float) -> str:
    """Return the scheduler's address as soon as one is found; fail if there is none in time."""
    from ...protocol.host.exits import EXIT_NO_SCHEDULER
    from ..finding import wait_for_scheduler

    # In a container nothing else would end a first process that waits.
    signal.signal(signal.SIGTERM, _end_while_waiting)
    try:
        return wait_for_scheduler(*chosen, timeout_s).addresses[0]
    except ConnectTimeout as error:
        fail(f"weft worker: {error}", EXIT_NO_SCHEDULER)


def _patience(given: Settings, setting: Setting[float]) -> float:
    """Return one of the two times to wait for a scheduler, for which --death-timeout may stand."""
    both = given[table.DEATH_TIMEOUT]
    return given[setting] if both is None or given.is_given(setting) else both


def _metrics_page(given: Settings, directory: str, security: Security) -> FamilyPage | None:
    """Return the page with the metrics of the workers, which is not served yet; None = none."""
    from ...protocol.settings.kinds import parse_host_port
    from ..workers.family_page import FamilyPage

    address = given[table.METRICS_ADDRESS]
    if address is None:
        return None
    host, port = parse_host_port(address, given.name_of(table.METRICS_ADDRESS))
    return FamilyPage(host, port, directory, security)


def _run_workers(
    config: SupervisorConfig, address: str, pid: Path | None, page: FamilyPage | None
) -> NoReturn:
    """Run the family of workers until its end, and end this process with its exit code."""
    from ...protocol.host.exits import EXIT_NO_SCHEDULER, EXIT_REFUSED
    from ..processes.pid_file import pid_file
    from ..workers.workers import run_daemon
    from .exits import REFUSALS

    spawner = os.getpid()
    try:
        with pid_file(pid):
            code = run_daemon(config, page)
    except ConnectTimeout as error:
        fail(f"weft worker: {error}", EXIT_NO_SCHEDULER)
    except REFUSALS as error:
        fail(f"weft worker: refused by {address}: {error.text}", EXIT_REFUSED)
    finally:
        # In the spawner, which is the last to leave, even if the supervisor was killed.
        if os.getpid() == spawner:
            shutil.rmtree(config.directory, ignore_errors=True)
    raise SystemExit(code)


def _end_while_waiting(number: int, frame: object) -> NoReturn:
    raise SystemExit(128 + number)
