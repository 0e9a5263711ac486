"""A worker as a process of its own: its event loop, its signals, and its end after a failure.

When weft's own code fails in this process, because a task has broken the interpreter that they
share or because of a bug, nothing here can be relied on. The process ends at once; its supervisor
starts another one, and the scheduler places the running tasks again.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import functools
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NoReturn

from ...protocol.errors import InternalError, WeftError
from ...protocol.host.event_loop import new_event_loop
from ...protocol.host.exits import EXIT_CRASHED, EXIT_REFUSED
from ...protocol.host.process_role import set_worker_process
from ..config import WorkerConfig
from ..server import WorkerServer
from ..slots.silence import STACK_SIGNAL, STACK_SUFFIX
from ..slots.started import read_joined
from .collecting import collect_at_rest, hold_back
from .exits import CRASHED, FAULT, REFUSED, SIGNALLED, asked_because, note
from .forking import give_children_default_signals
from .repeated_signals import Repeats
from .shadowing import describe_hiding

logger = logging.getLogger("weft.worker")

#: How long a thread may hold the GIL while the loop waits for it.
_SWITCH_INTERVAL_S: Final = 0.0005
#: How long the last report may take.
_CRASH_S: Final = 5.0
_RECURSION_LIMIT: Final = 1000
#: Errors of networks, files and peers. Any other that escapes a callback of the loop, where no user
#: code runs, means that weft's own code has failed and its state may be wrong.
_EXPECTED: Final = (OSError, TimeoutError, asyncio.TimeoutError, WeftError)
_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def main(config: WorkerConfig) -> None:
    """Run a worker as this process, on uvloop if it is installed, until it is stopped.

    SIGTERM lets running tasks finish within the grace period; SIGINT does not, nor does a second
    SIGTERM later than `REPEAT_S`.

    Raises:
        WeftError: as `WorkerServer.run`.
    """
    set_worker_process()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    hold_back()
    loop = new_event_loop()
    try:
        asyncio.set_event_loop(loop)
        with _stacks(config.started_path):
            loop.run_until_complete(_main(config))
    finally:
        asyncio.set_event_loop(None)
        loop.close()


async def _main(config: WorkerConfig) -> None:

    def crash(error: BaseException) -> NoReturn:
        _end_process(config, error)

    worker = WorkerServer(config, crash)
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(functools.partial(_on_loop_error, crash))

    repeats = Repeats()

    def on_signal(number: signal.Signals, end: Callable[[str], object]) -> None:
        if repeats.is_repeat(number, loop.time()):
            return
        note(config.started_path, SIGNALLED, number.name)
        end(asked_because(config.started_path) or f"signal {number.name}")

    loop.add_signal_handler(signal.SIGTERM, on_signal, signal.SIGTERM, worker.leave)
    loop.add_signal_handler(signal.SIGINT, on_signal, signal.SIGINT, worker.stop)
    give_children_default_signals(_STOP_SIGNALS)
    collecting = loop.create_task(collect_at_rest())
    try:
        await worker.run()
    finally:
        collecting.cancel()
        await asyncio.wait([collecting])


@contextlib.contextmanager
def _stacks(record: Path | None) -> Iterator[None]:
    """Let the interpreter write its stacks for the supervisor.

    Those of all threads on request, whatever they are doing; and where it was if SIGSEGV or the
    like ends it.
    """
    if record is None:
        yield
        return
    with (
        open(record.with_suffix(STACK_SUFFIX), "w") as file,
        open(record.with_suffix(FAULT), "w") as fault,
    ):
        if STACK_SIGNAL:
            faulthandler.register(STACK_SIGNAL, file=file)
        faulthandler.enable(fault, all_threads=False)
        try:
            yield
        finally:
            faulthandler.disable()
            if STACK_SIGNAL:
                faulthandler.unregister(STACK_SIGNAL)


def _on_loop_error(crash: Any, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    error = context.get("exception")
    if isinstance(error, InternalError) or (
        isinstance(error, Exception) and not isinstance(error, _EXPECTED)
    ):
        crash(error)
    loop.default_exception_handler(context)


def _end_process(config: WorkerConfig, error: BaseException) -> NoReturn:
    """End this process. Reporting why is tried first, and may fail without consequence."""
    try:
        sys.setrecursionlimit(_RECURSION_LIMIT)
        faulthandler.dump_traceback_later(_CRASH_S, exit=True)
        what = f"{type(error).__name__}: {error}"
        has_joined = config.started_path is None or read_joined(config.started_path)
        is_used_up = isinstance(error, (RecursionError, MemoryError))
        hiding = "" if has_joined else describe_hiding(error)
        if hiding:
            note(config.started_path, REFUSED, f"{hiding} ({what})")
            os._exit(EXIT_REFUSED)  # the next start would fail as well; the supervisor reports it
        if not has_joined:
            why = "no task has run in it, so its installation is damaged, or this is a bug of weft"
        elif is_used_up:
            why = "a task has changed the interpreter that it shares with weft, or exhausted it"
        else:
            why = "a task has broken the process that it shares with weft, or this is a bug of weft"
        # First for the supervisor, whose report puts the reason into the errors of tasks.
        note(config.started_path, CRASHED, f"weft's own code failed in it ({what}): {why}")
        # The scheduler logs the supervisor's report as a warning; a bug needs the traceback.
        logger.log(
            logging.INFO if is_used_up and config.supervisor_id else logging.ERROR,
            "worker %s ends, weft's own code failed in it (%s): %s",
            config.name,
            what,
            why,
            exc_info=None if is_used_up else error,
            extra={"code": "worker-failed"},
        )
    finally:
        os._exit(EXIT_CRASHED)
