"""Puts together what watches the memory of a worker."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from ..protocol.host.memory import taken_nbytes
from ..protocol.host.process_role import is_worker_process
from .config import WorkerConfig, spill_folder
from .core.features.memory import MemoryChanged, MemoryPressed
from .data.spilling import Spiller

if TYPE_CHECKING:
    from .measuring.status import StatusReporter
    from .slots.executor import TaskExecutor


def watch_memory(
    config: WorkerConfig,
    executor: TaskExecutor,
    reporter: StatusReporter,
    loop: asyncio.AbstractEventLoop,
) -> None:
    """Let values leave the memory of a worker that has a limit, until `executor` stops."""
    folder = config.spill_directory
    # Others share the process of a worker that is a thread of a program.
    is_own = is_worker_process()
    if not config.memory_limit or (folder is None and not is_own):
        return
    state = executor.state
    state.fetching.memory_limit = config.memory_limit

    def in_use() -> set[int]:
        tasks = [state.by_key.get(key) for key, _ in executor.running()]
        return {record.attempt for task in tasks if task for record in task.inputs}

    def is_awaited(attempt: int) -> bool | None:
        record = state.by_attempt.get(attempt)
        return None if record is None else record.pins > 0

    def resident() -> int:
        own_nbytes = taken_nbytes(in_files=executor.store.shared_nbytes)
        return own_nbytes + executor.children_nbytes()

    def report() -> None:
        executor.handle(MemoryChanged(reporter.status()))

    def changed() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the process ends
            loop.call_soon_threadsafe(report)

    executor.spiller = Spiller(
        executor.store,
        config.fractions,
        None if folder is None else spill_folder(folder, config.worker_id),
        config.max_spill,
        in_use=in_use,
        is_awaited=is_awaited,
        resident=resident if is_own else lambda: 0,
        changed=changed,
        pressed=lambda is_pressed: executor.handle(MemoryPressed(is_pressed)),
    )
    executor.threads.append(executor.spiller.thread)
    executor.spiller.start()
