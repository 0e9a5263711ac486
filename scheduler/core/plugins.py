"""Plugins: what clients have registered for all workers, present and future ones.

A plugin is a name and a pickle, which is opaque here and bounded. It is sent to each worker that is
connected; the question is answered when all of them have reported. If it fails on one of them it is
not kept, is torn down where it was set up, and the answer has the failures.

A later worker *prepares*: it is sent all plugins, and is treated as one that is away until it has
reported each, so that it gets no task before. One on which a plugin fails ends by itself.
A worker that was away when a plugin was registered gets it when it is back; it may take tasks
meanwhile, as all workers that are there when a plugin comes.

The scheduler's memory is all there is: a client states the plugins that it has registered to each
new scheduler, before the barrier. Plugins are known by their content, so a worker that has one only
answers again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from ...protocol.wire import messages as m
from ...protocol.wire.failure import MAX_RELAYED_BYTES
from ...protocol.wire.payload import Blob, blob_nbytes
from . import barrier
from .asked import BadArgument, Info
from .away import bring_back, set_away
from .checking import differences, unless
from .passing import is_flat
from .peers import ClientHandle, WorkerHandle

if TYPE_CHECKING:
    from .state import SchedulerState

#: Plugins that are held at a time, and the bytes of all their pickles: a worker that joins is sent
#: all of them at once.
MAX_PLUGINS: Final = 256
MAX_NBYTES: Final = 128 << 20
#: Characters of a name or an id.
MAX_CHARS: Final = 500
#: Failures in one answer; workers that an answer names.
MAX_FAILURES: Final = 5
MAX_NAMED: Final = 10_000


class Plugin:
    """One plugin, until the last worker has reported that it was torn down."""

    __slots__ = (
        "blob",
        "failures",
        "has_failed",
        "is_ending",
        "is_new",
        "n_failed",
        "name",
        "nbytes",
        "orders",
        "plugin_id",
        "ready",
        "waiting",
    )

    def __init__(self, name: str, plugin_id: str, blob: Blob) -> None:
        self.name = name
        self.plugin_id = plugin_id
        self.blob = blob
        self.nbytes = blob_nbytes(blob)
        #: {worker: None} of those that have it
        self.ready: dict[WorkerHandle, None] = {}
        #: {worker: the request that it has not answered}; disjoint with `ready`
        self.waiting: dict[WorkerHandle, int] = {}
        #: the first failures, and the number of all, since it is new or ending
        self.failures: list[Info] = []
        self.n_failed = 0
        #: [(peer, its request)] to be answered when `waiting` is empty
        self.orders: list[tuple[int, int]] = []
        #: not all workers that were there at its registration have reported yet
        self.is_new = True
        #: it is being torn down because its set-up has failed
        self.has_failed = False
        #: it is being torn down
        self.is_ending = False

    def __repr__(self) -> str:
        return f"<plugin {self.name!r}>"


class Plugins:
    """All plugins of a scheduler."""

    __slots__ = ("ending", "has_ended", "held", "preparing")

    def __init__(self) -> None:
        #: {name: plugin}, in the order of their registration; none is ending
        self.held: dict[str, Plugin] = {}
        #: {plugin: None} of those that some worker has not torn down yet
        self.ending: dict[Plugin, None] = {}
        #: {worker: None}: away, because they have not set up all plugins yet
        self.preparing: dict[WorkerHandle, None] = {}
        #: some plugin has ended, so that a client may have missed it
        self.has_ended = False

    def all(self) -> list[Plugin]:
        """Return those that end, then the others."""
        return [*self.ending, *self.held.values()]


# -- orders of clients -----------------------------------------------------------------------------
def on_register(state: SchedulerState, peer: int, message: m.Ask) -> None:
    """Set up a plugin of a client everywhere; the answer follows.

    Raises:
        BadArgument: the plugin is too large, or there are too many.
    """
    name = _text(message.arguments, "name")
    plugin_id = _text(message.arguments, "plugin")
    if len(message.blobs) != 1 or message.blobs[0] is None:
        raise BadArgument("one pickle is expected")
    held = state.plugins.held
    plugin = held.get(name)
    if plugin is None or plugin.plugin_id != plugin_id:
        replaced = plugin
        plugin = Plugin(name, plugin_id, message.blobs[0])
        _check_size(state, plugin, replaced)
        if replaced is not None:
            _end_on_request(state, replaced)
        held[name] = plugin
        state.log("info", f"plugin {name!r} is set up on all workers")
        for ws in state.workers.values():
            # Before the barrier nothing is assigned, and new workers may prepare.
            _set_up(state, plugin, ws, may_wait=state.recovery is not None)
    plugin.orders.append((peer, message.request))
    _settle(state, plugin)


def _check_size(state: SchedulerState, plugin: Plugin, replaced: Plugin | None) -> None:
    others = [one for one in state.plugins.all() if one is not replaced]
    if plugin.nbytes > MAX_RELAYED_BYTES:
        raise BadArgument(
            f"plugin {plugin.name[:100]!r} has {plugin.nbytes} bytes, more than the limit of "
            f"{MAX_RELAYED_BYTES >> 20} MiB; let it read its data where it runs"
        )
    if plugin.nbytes + sum(one.nbytes for one in others) > MAX_NBYTES:
        raise BadArgument(
            f"all plugins together would have more than {MAX_NBYTES >> 20} MiB, which is the "
            "limit; unregister others, or let them read their data where they run"
        )
    if len(others) >= MAX_PLUGINS:
        raise BadArgument(f"there are {len(others)} plugins, which is the limit; unregister some")


def on_unregister(state: SchedulerState, peer: int, message: m.Ask) -> None:
    """Tear down a plugin everywhere; the answer follows.

    Raises:
        BadArgument: there is none of this name.
    """
    name = _text(message.arguments, "name")
    plugin = state.plugins.held.get(name)
    if plugin is None:
        there = ", ".join(map(repr, list(state.plugins.held)[:10])) or "none"
        raise BadArgument(f"workers have no plugin {name[:100]!r}; they have: {there}")
    state.log("info", f"plugin {name!r} is torn down on all workers")
    plugin.orders.append((peer, message.request))
    _end_on_request(state, plugin)


def _text(arguments: Info, key: str) -> str:
    value = arguments.get(key)
    if type(value) is not str or not 1 <= len(value) <= MAX_CHARS:
        raise BadArgument(f"{key}= is a text of 1 to {MAX_CHARS} characters")
    return value


def _end_on_request(state: SchedulerState, plugin: Plugin) -> None:
    """End a plugin whose set-up on later workers is not to be reported any more."""
    if not plugin.is_new:
        plugin.n_failed, plugin.failures = 0, []
    _end(state, plugin)


def _end(state: SchedulerState, plugin: Plugin) -> None:
    """Begin to tear a plugin down: its set-up is not waited for any more."""
    plugins = state.plugins
    del plugins.held[plugin.name]
    plugins.ending[plugin] = None
    plugin.is_ending = True
    plugin.ready, had = {}, {**plugin.ready, **plugin.waiting}
    for ws in had:
        _ask(state, plugin, ws)
    plugins.has_ended = True
    for client in state.clients_by_peer.values():
        state.send_client(client, m.PluginGone(plugin=plugin.plugin_id))
    for ws in list(plugins.preparing):
        _admit_prepared(state, ws)
    _settle(state, plugin)


# -- workers ---------------------------------------------------------------------------------------
def greet(state: SchedulerState, ws: WorkerHandle) -> None:
    """Send a worker whose session begins the plugins that it has not reported."""
    plugins = state.plugins
    for plugin in plugins.ending:
        if ws in plugin.waiting:
            _ask(state, plugin, ws)
    for plugin in plugins.held.values():
        if ws not in plugin.ready:
            _set_up(state, plugin, ws, may_wait=True)


def _set_up(state: SchedulerState, plugin: Plugin, ws: WorkerHandle, *, may_wait: bool) -> None:
    """Send a plugin; a worker that has served no scheduler yet waits for it, if it `may_wait`."""
    preparing = state.plugins.preparing
    if may_wait and ws.is_new and ws.inventory is None and ws not in preparing:
        preparing[ws] = None
        if not ws.is_away:
            set_away(state, ws)
    _ask(state, plugin, ws)


def _ask(state: SchedulerState, plugin: Plugin, ws: WorkerHandle) -> None:
    """Ask a worker to set a plugin up, or to tear it down; one that is away, when it is back."""
    request = state.next_request
    state.next_request = request + 1
    plugin.waiting[ws] = request
    if ws.peer not in state.roles:
        return
    if plugin.is_ending:
        state.send(ws.peer, m.TearDownPlugin(request=request, plugin=plugin.plugin_id))
        return
    state.send(
        ws.peer,
        m.SetUpPlugin(
            request=request,
            plugin=plugin.plugin_id,
            name=plugin.name,
            blobs=[plugin.blob],
            is_required=ws in state.plugins.preparing,
        ),
    )


def on_done(state: SchedulerState, ws: WorkerHandle, message: m.PluginDone) -> None:
    """A worker has set a plugin up, or torn it down, or that has failed."""
    plugin = next((p for p in state.plugins.all() if p.waiting.get(ws) == message.request), None)
    if plugin is None:
        return  # it was torn down meanwhile
    failure = message.info.get("failure")
    if failure is not None:
        _note_failure(state, plugin, ws, failure)
        if not plugin.is_ending and ws in state.plugins.preparing:
            return  # it ends
    del plugin.waiting[ws]
    if not plugin.is_ending:
        plugin.ready[ws] = None
    if ws in state.plugins.preparing:
        _admit_prepared(state, ws)
    _settle(state, plugin)


def on_unsupported(state: SchedulerState, who: object, request: int) -> None:
    """A worker of another release does not know plugins: it fails to set one up."""
    if isinstance(who, WorkerHandle) and request:
        text = "the worker runs a release of weft that knows no plugins; install this one there"
        # The form of a packed exception of which no more than the text is known.
        failure = [b"", "UnsupportedRequest", text, f"UnsupportedRequest: {text}", b""]
        on_done(state, who, m.PluginDone(request=request, info={"failure": failure}))


def _note_failure(state: SchedulerState, plugin: Plugin, ws: WorkerHandle, failure: Any) -> None:
    step = "torn down" if plugin.is_ending else "set up"
    if plugin.has_failed:
        return  # clients are answered why it was not kept, not what its teardown raised
    plugin.n_failed += 1
    if plugin.n_failed == 1 or not plugin.is_new:
        state.log("warning", f"plugin {plugin.name!r} could not be {step} on worker {ws.name}")
    if len(plugin.failures) < MAX_FAILURES and type(failure) is list and is_flat(failure):
        plugin.failures.append({"worker": ws.address, "failure": failure})


def on_gone(state: SchedulerState, ws: WorkerHandle) -> None:
    """A worker has ended, or will not come back under this record."""
    plugins = state.plugins
    plugins.preparing.pop(ws, None)
    for plugin in plugins.all():
        plugin.ready.pop(ws, None)
        if plugin.waiting.pop(ws, None) is not None:
            _settle(state, plugin)


def admit(state: SchedulerState, ws: WorkerHandle) -> None:
    """Give work to a worker that has sent its inventory, unless it prepares."""
    if ws in state.plugins.preparing:
        ws.inventory = None
        state.deadlines.cancel(ws.away_due)
        barrier.note_worker(state, ws)
        _admit_prepared(state, ws)
    else:
        bring_back(state, ws)


def _admit_prepared(state: SchedulerState, ws: WorkerHandle) -> None:
    """Give work to a worker that prepares, if it has set up everything."""
    plugins = state.plugins
    if any(ws in plugin.waiting for plugin in plugins.held.values()):
        return
    if ws.peer in state.roles and ws.inventory is None:
        del plugins.preparing[ws]
        bring_back(state, ws)


def on_client_back(state: SchedulerState, client: ClientHandle) -> None:
    """Send a client that has been here before what it needs to forget the plugins that ended."""
    if state.plugins.has_ended:
        ids = [plugin.plugin_id for plugin in state.plugins.held.values()]
        state.send_client(client, m.PluginsHeld(plugins=ids))


def is_preparing(state: SchedulerState, ws: WorkerHandle) -> bool:
    """Return whether a connected worker is held back by nothing but its plugins."""
    return ws in state.plugins.preparing and ws.peer in state.roles and ws.inventory is None


def n_preparing(state: SchedulerState) -> int:
    """Return the number of connected workers that prepare."""
    return sum(is_preparing(state, ws) for ws in state.plugins.preparing)


def _settle(state: SchedulerState, plugin: Plugin) -> None:
    """Answer the clients if all workers have reported."""
    plugins = state.plugins
    if plugin.is_ending:
        if plugin.waiting:
            return
        del plugins.ending[plugin]
    elif plugin.is_new and any(ws not in plugins.preparing for ws in plugin.waiting):
        return
    elif plugin.is_new and plugin.n_failed:
        plugin.has_failed = True
        _end(state, plugin)  # which answers in the end
        return
    plugin.is_new = False
    orders, plugin.orders = plugin.orders, []
    info: Info = {"n_failed": plugin.n_failed, "failures": plugin.failures}
    if not plugin.is_ending:
        ready = [ws.address for ws in plugin.ready]
        info["workers"] = ready[:MAX_NAMED]
    for peer, request in orders:
        if peer in state.roles:
            state.send(peer, m.Answer(request=request, info=info, next_page=""))


# -- invariants ------------------------------------------------------------------------------------
def _bytes(state: SchedulerState) -> int:
    return sum(plugin.nbytes for plugin in state.plugins.all())


#: {what holds: what breaks it}
PLUGIN_INVARIANTS: Final[dict[str, Callable[[SchedulerState], Iterable[object]]]] = {
    "plugins are filed by name": lambda s: [
        plugin for name, plugin in s.plugins.held.items() if name != plugin.name
    ],
    "a plugin is held or ends": lambda s: [
        *(plugin for plugin in s.plugins.held.values() if plugin.is_ending),
        *(plugin for plugin in s.plugins.ending if not plugin.is_ending or not plugin.waiting),
    ],
    "each worker has a held plugin, or waits for it": lambda s: differences(
        [(p, ws) for p in s.plugins.held.values() for ws in s.workers.values()],
        [(p, ws) for p in s.plugins.held.values() for ws in (*p.ready, *p.waiting)],
    ),
    "a worker that prepares is away and waits for a plugin": lambda s: [
        ws
        for ws in s.plugins.preparing
        if not ws.is_away
        or s.workers_by_id.get(ws.worker_id) is not ws
        or (
            is_preparing(s, ws)
            and not any(ws in plugin.waiting for plugin in s.plugins.held.values())
        )
    ],
    "a client waits only for a plugin that some worker has not reported": lambda s: [
        plugin for plugin in s.plugins.all() if plugin.orders and not plugin.waiting
    ],
    "plugins are few and small": lambda s: unless(
        _bytes(s) <= 2 * MAX_NBYTES and len(s.plugins.held) <= MAX_PLUGINS, _bytes(s)
    ),
}
