"""The size of the cluster, and those who wait until it has so many workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ....protocol.wire.messages import ClusterChanged
from ..feature import ClientFeature
from ..tasks import Watcher
from ..watching import touch

if TYPE_CHECKING:
    from ..state import ClientState


@dataclass(slots=True)
class WatchCluster:
    """Notify `watcher` of the number of workers as soon as there are `n_workers`."""

    watcher: Watcher
    n_workers: int


class ReportedSize:
    """The size of the cluster; 0 between sessions."""

    def __init__(self) -> None:
        self.n_workers = 0
        self.nthreads = 0
        #: waits for more workers than there are
        self.watched: list[WatchCluster] = []


def cluster_of(core: ClientState) -> ReportedSize:
    """Return the size of the cluster."""
    return core.record(ReportedSize)


def on_changed(core: ClientState, message: ClusterChanged) -> None:
    """Note the size that the scheduler reports."""
    cluster = cluster_of(core)
    cluster.n_workers, cluster.nthreads = message.n_workers, message.nthreads
    _notify(core)


def on_watch(core: ClientState, operation: WatchCluster) -> None:
    """Notify the watcher now, or when there are so many."""
    if core.end is not None:
        touch(core, operation.watcher, None)
        return
    cluster_of(core).watched.append(operation)
    _notify(core)


def _notify(core: ClientState) -> None:
    cluster = cluster_of(core)
    for wait in cluster.watched[:]:
        if cluster.n_workers >= wait.n_workers:
            cluster.watched.remove(wait)
            touch(core, wait.watcher, cluster.n_workers)


def _on_lost(core: ClientState) -> None:
    """Note that the size is not known: the next session begins with it."""
    cluster = cluster_of(core)
    cluster.n_workers = cluster.nthreads = 0


def _on_ended(core: ClientState) -> None:
    cluster = cluster_of(core)
    for wait in cluster.watched:
        touch(core, wait.watcher, None)
    cluster.watched.clear()


def _on_forgotten(core: ClientState, watcher: Watcher) -> None:
    cluster = cluster_of(core)
    cluster.watched = [wait for wait in cluster.watched if wait.watcher is not watcher]


FEATURE: Final = ClientFeature(
    name="cluster",
    records=(ReportedSize,),
    handlers={ClusterChanged: on_changed, WatchCluster: on_watch},
    lost=(_on_lost,),
    ended=(_on_ended,),
    forgotten=(_on_forgotten,),
    invariants={
        "watchers of the cluster want more workers": lambda core: [
            wait
            for wait in cluster_of(core).watched
            if wait.n_workers <= cluster_of(core).n_workers
        ],
    },
)
