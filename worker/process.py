"""A worker as a process of its own: its event loop, and the signals that end it."""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import Final

from ..protocol.process_role import set_worker_process
from .config import WorkerConfig
from .forking import give_children_default_signals
from .server import WorkerServer

__all__ = ["main"]

#: How long a thread may hold the GIL while the loop waits for it.
_SWITCH_INTERVAL_S: Final = 0.0005
_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def main(config: WorkerConfig) -> None:
    """Run a worker as this process: on uvloop where there is one, until it is told to end.

    SIGTERM lets what runs finish within the grace period; SIGINT, or a second SIGTERM, does not.

    Raises:
        WeftError: as `WorkerServer.run`.
    """
    set_worker_process()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    loop = _new_loop()
    try:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(_main(config))
    finally:
        asyncio.set_event_loop(None)
        loop.close()


async def _main(config: WorkerConfig) -> None:
    worker = WorkerServer(config)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, worker.leave, "signal SIGTERM")
    loop.add_signal_handler(signal.SIGINT, worker.stop, "signal SIGINT")
    give_children_default_signals(_STOP_SIGNALS)
    await worker.run()


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
