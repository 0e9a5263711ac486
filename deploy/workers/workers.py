"""The process family of the workers: what the embedded cluster and `weft worker` start.

Importing is done first and once, in the spawner; see `worker/family/spawn.py` for the family.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path
from typing import Any, Final, TypeAlias

from ...protocol.errors import ConfigError, InternalError, NotAdmitted, PluginFailed, WeftError
from ...protocol.host.exits import EXIT_CONFIG, EXIT_NO_SCHEDULER, EXIT_REFUSED
from ...protocol.host.log_lines import log_to_stderr
from ...protocol.host.log_ring import keep_latest
from ...protocol.host.log_tail import SUFFIX, LogTail
from ...protocol.trust.security import Security
from ...worker.config import WorkerConfig
from ...worker.family import plugin_host, process, spawn
from ...worker.family.config import SupervisorConfig, WorkerSpec
from ...worker.family.exits import REFUSED, note
from ...worker.family.supervisor import supervise
from ...worker.measuring.children import send_user_code_by_value
from ...worker.policy import fractions_of, isolation_of
from ..processes.child import Parent
from ..processes.preloading import preload
from ..processes.titles import set_title
from .family_page import FamilyPage
from .offering import offer_client

_log = logging.getLogger("weft.worker")

Finder: TypeAlias = Callable[[], "tuple[Sequence[str], Security]"]

#: Results of a cluster that its owner has closed are not needed by any process.
_EMBEDDED_GRACE_S: Final = 1.0
_EMBEDDED_STOP_TIMEOUT_S: Final = 0.1
#: One that gets SIGTERM alone, from outside, leaves in peace for so long.
_EMBEDDED_GRACE_PERIOD_S: Final = 10.0
_STOP_TIMEOUT_S: Final = 2.0


def run_embedded(parent: Parent) -> int:
    """Be the spawner of a `LocalCluster`; `local/cluster.py` configures it."""
    send_user_code_by_value()
    # The imports, the only step that fails before errors can be reported, are done; workers
    # inherit this standard error.
    parent.take_stderr()

    def supervisor_main(commands: socket.socket) -> int:
        set_title("weft supervisor")
        plain = parent.read_config()
        address, security = plain["scheduler_address"], Security.from_plain(plain["security"])
        config = SupervisorConfig(
            find=lambda: ([address], security),
            workers=[WorkerSpec(**spec) for spec in plain["workers"]],
            directory=plain["directory"],
            owns_directory=True,
            embedded=True,
            grace_s=_EMBEDDED_GRACE_S,
            grace_period_s=_EMBEDDED_GRACE_PERIOD_S,
            first=WorkerSpec(**plain["first"]),
        )
        try:
            return supervise(config, commands, lifeline=parent.socket, on_started=parent.ready)
        except WeftError as error:
            parent.fail(error)
            return 1
        finally:  # also when the program was killed
            if plain["files"]:
                shutil.rmtree(plain["files"], ignore_errors=True)

    def worker_main(plain: dict[str, Any]) -> int:
        parent.close()
        log_to_stderr(plain["log_level"])
        if plain["channel"] is not None:
            return _host_plugins(plain)
        plain["grace_period_s"] = _EMBEDDED_GRACE_PERIOD_S
        return _work(plain, None, _EMBEDDED_STOP_TIMEOUT_S)

    return spawn.run(supervisor_main, worker_main, embedded=True)


def run_daemon(config: SupervisorConfig, page: FamilyPage | None = None) -> int:
    """Run the workers of `weft worker` until the order to stop; return the exit code.

    With a `page` of metrics, which is served from before the first worker is started.

    An error of the supervisor is raised in its process, where the caller's stack goes on.
    """

    def worker_main(plain: dict[str, Any]) -> int:
        if plain["channel"] is not None:
            return _host_plugins(plain)
        known = plain["scheduler_addresses"], Security.from_plain(plain["security"])

        def find() -> tuple[Sequence[str], Security]:
            # While a scheduler is started again there is no connection file for a moment.
            nonlocal known
            with contextlib.suppress(ConfigError):
                known = config.find()
            return known

        return _work(plain, find, _STOP_TIMEOUT_S)

    def supervisor_main(commands: socket.socket) -> int:
        set_title("weft supervisor")
        if page is None:
            return supervise(config, commands)
        try:
            config.metrics_url = page.start()
            config.accompany = page.keep
            for spec in config.workers:
                spec.options = {**spec.options, "metrics_url": config.metrics_url}
            return supervise(config, commands)
        finally:
            page.close()

    send_user_code_by_value()
    return spawn.run(supervisor_main, worker_main)


def _prepare(plain: dict[str, Any], tail: LogTail | None = None) -> None:
    keep_latest(tail)
    os.environ.update(plain.get("environment", {}))
    if temporary := plain.get("temporary_directory"):
        os.environ["TMPDIR"] = temporary  # for processes that tasks start
        tempfile.tempdir = temporary


def _host_plugins(plain: dict[str, Any]) -> int:
    """Be the process in which the supervisor's plugins run."""
    _prepare(plain)
    set_title("weft plugins")
    plugin_host.main(plain)
    return 0


def _work(plain: dict[str, Any], find: Finder | None, stop_timeout_s: float) -> int:
    """Be a worker process."""
    tail = None
    with contextlib.suppress(Exception):  # else its death is told without its last lines
        tail = LogTail(Path(plain["started_path"]).with_suffix(SUFFIX))
    _prepare(plain, tail)
    set_title(f"weft worker {plain['name']}")
    config = WorkerConfig(
        scheduler=plain["scheduler_addresses"][0],
        security=Security.from_plain(plain["security"]),
        name=plain["name"],
        nthreads=plain["nthreads"],
        memory_limit=plain["memory_limit"],
        fractions=fractions_of(plain),
        spill_directory=Path(plain["spill_directory"]) if plain.get("spill_directory") else None,
        max_spill=plain.get("max_spill") or inf,
        resources=plain["resources"],
        local_directory=Path(plain["local_directory"]),
        listen_address=plain["listen_address"],
        port=plain.get("port", 0),
        contact_host=plain.get("contact_host", ""),
        find=find,
        supervisor_id=plain["supervisor_id"],
        worker_id=plain["worker_id"],
        metrics_url=plain.get("metrics_url", ""),
        started_path=Path(plain["started_path"]),
        stop_timeout_s=stop_timeout_s,
        catches_output=True,
        # Those of a `LocalCluster` share the terminal of the program that shows it.
        keeps_output=find is not None,
        grace_period_s=plain.get("grace_period_s", 0.0),
        tasks_end_at=plain.get("tasks_end_at"),
        isolation=isolation_of(f"{__package__}.isolated", plain.get("isolate")),
        # The supervisor ends the whole family, with one line, before its workers do so themselves.
        orphan_lease_s=plain.get("orphan_lease_s", 900.0) + 30.0,
    )
    try:
        config.preloaded = preload(plain.get("preload", ()))
        offer_client()
        process.main(config)
    except (InternalError, PluginFailed):
        raise  # the supervisor reports it; of a bug, the traceback is the report
    except NotAdmitted as error:
        note(config.started_path, REFUSED, error.text)  # which the supervisor logs
        return EXIT_REFUSED
    except WeftError as error:
        if isinstance(error, ConfigError) and find is None:
            note(config.started_path, REFUSED, str(error))  # which the program's cluster raises
            return EXIT_REFUSED
        _log.error("worker %s: %s", config.name, error, extra={"code": "worker-not-joined"})
        # All others are about the network, or the process at the scheduler's address.
        return EXIT_CONFIG if isinstance(error, ConfigError) else EXIT_NO_SCHEDULER
    return 0
