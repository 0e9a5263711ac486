"""`weft.multiprocessing.get(graph, keys)` runs a graph on processes; see docs/embedded.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .graphs.blocks.core.tasks import BlockTask
from .graphs.get import Read, run_graph
from .graphs.options import GetOptions, ResolvedOptions, read_options, use_configured_executor

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .graphs.drivers.observing import Observer

__all__ = ["get", "shutdown"]


def get(dsk: Any, keys: Any, **options: Unpack[GetOptions]) -> Any:
    """Run a graph on worker processes and return the values of some of its keys.

    Without an executor, and if dask's configuration has no `pool`, a local cluster of weft's runs
    it, with one process for each core by default. It is started when it is first needed, and kept
    for the next call. Functions of the main program, and lambdas, travel by value: no script needs
    an ``if __name__ == "__main__"`` for this. Arguments, results and errors are those of
    `weft.get`.
    """
    checked = read_options(options)
    use_configured_executor(checked)
    return run_graph(dsk, keys, checked, _drive_on_kept_cluster)


def shutdown() -> None:
    """End the worker processes that are kept for later graphs. They are started again when needed.

    Programs need not call this: the processes end with them, or after a minute without work.
    """
    from .deploy.local import kept

    kept.shutdown()


def _drive_on_kept_cluster(read: Read, observer: Observer | None, options: ResolvedOptions) -> Any:
    from .deploy.local import kept

    return kept.run(read(BlockTask), observer, options)
