"""The records of plugins; `plugins` has the functions over them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from ....protocol.wire.payload import Blob, blob_nbytes
from ....protocol.wire.question_arguments import Info
from ..records.peers import SupervisorHandle, WorkerHandle

if TYPE_CHECKING:
    from ..state import SchedulerState

#: What a plugin is set up on.
Process: TypeAlias = WorkerHandle | SupervisorHandle


#: In the place of a request: nothing more is asked of the process.
ENDING: Final = -1


class Plugin:
    """One plugin, until the last worker has reported that it was torn down."""

    __slots__ = (
        "blob",
        "failures",
        "has_failed",
        "is_aside",
        "is_ending",
        "is_for_supervisors",
        "is_new",
        "last_death",
        "n_deaths",
        "n_failed",
        "name",
        "nbytes",
        "orders",
        "outdated",
        "plugin_id",
        "ready",
        "renewed",
        "renewing",
        "renews",
        "required",
        "trial",
        "waiting",
    )

    def __init__(
        self,
        name: str,
        plugin_id: str,
        blob: Blob,
        *,
        is_for_supervisors: bool = False,
        renews: bool = False,
    ) -> None:
        self.name = name
        self.plugin_id = plugin_id
        self.blob = blob
        self.nbytes = blob_nbytes(blob)
        #: supervisors set it up, not workers
        self.is_for_supervisors = is_for_supervisors
        #: workers that were started before it are replaced
        self.renews = renews
        #: {process: None} of those that have it
        self.ready: dict[Process, None] = {}
        #: {process: the request that it has not answered, 0 = it was sent none, ENDING = it has
        #: failed, and ends}; disjoint with `ready`
        self.waiting: dict[Process, int] = {}
        #: the worker that sets it up before the others, which are sent nothing; it waits
        self.trial: WorkerHandle | None = None
        #: {supervisor: None}: waiting; they end if it fails, and start no worker before
        self.required: dict[Process, None] = {}
        #: {supervisor: None}: ready, with workers that were started before; only while it is new
        self.outdated: dict[Process, None] = {}
        #: ids of those that were asked to replace their workers, for the next answer
        self.renewed: list[str] = []
        #: {supervisor: the request} of those that have not done so; each is ready
        self.renewing: dict[Process, int] = {}
        #: the first failures, and the number of all, since it is new or ending
        self.failures: list[Info] = []
        self.n_failed = 0
        #: [(peer, its request, it has registered another plugin, which is ignored)] to be answered
        #: when `waiting` is empty
        self.orders: list[tuple[int, int, bool]] = []
        #: not all workers that were there at its registration have reported yet
        self.is_new = True
        #: it is being torn down because its set-up has failed
        self.has_failed = False
        #: it is being torn down
        self.is_ending = False
        #: processes that ended while they set it up, since one has done so; the reason of the last
        self.n_deaths = 0
        self.last_death = ""
        #: no further process gets it: too many have died of it
        self.is_aside = False

    def try_again(self) -> None:
        """Begin anew with a plugin that was set aside."""
        self.is_new = True
        self.is_aside = False
        self.n_deaths, self.last_death = 0, ""
        self.n_failed, self.failures = 0, []

    def __repr__(self) -> str:
        return f"<plugin {self.name!r}>"


class Plugins:
    """All plugins of a scheduler."""

    __slots__ = ("ending", "has_ended", "kept", "preparing")

    def __init__(self) -> None:
        #: {name: plugin}, in the order of their registration; none is ending
        self.kept: dict[str, Plugin] = {}
        #: {plugin: None} of those that some worker has not torn down yet
        self.ending: dict[Plugin, None] = {}
        #: {worker: None}: away, because they have not set up all plugins yet
        self.preparing: dict[WorkerHandle, None] = {}
        #: some plugin has ended, so that a client may have missed it
        self.has_ended = False

    def all(self) -> list[Plugin]:
        """Return those that end, then the others."""
        return [*self.ending, *self.kept.values()]

    def set_up_on(self, ws: WorkerHandle) -> Plugin | None:
        """Return the plugin that a worker is setting up, if it does nothing else with plugins."""
        if any(plugin.waiting.get(ws) for plugin in self.ending):
            return None  # it may have died of the teardown, or of a set-up that was given up
        return next((p for p in self.kept.values() if p.waiting.get(ws, 0) > 0), None)


def plugins_of(state: SchedulerState) -> Plugins:
    """Return the plugins."""
    return state.record(Plugins)
