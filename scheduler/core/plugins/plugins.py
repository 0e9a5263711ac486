"""Plugins: what clients have registered for all workers or supervisors, present and future ones.

A plugin is a name and a pickle, which is opaque here and bounded. It is sent to each worker that is
connected; the question is answered when all of them have reported. If it fails on one of them it is
not kept, is torn down where it was set up, and the answer has the failures.

A worker is sent one plugin at a time, so that it is known which one it dies of. One of the workers
that are there sets it up before the others, for 10 s at most: if it dies, it is the only one.

A later worker *prepares*: it is sent all plugins, and is treated as one that is away until it has
reported each, so that it gets no task before. One on which a plugin fails ends by itself.
A worker that was away when a plugin was registered gets it when it is back; it may take tasks
meanwhile, as all workers that are there when a plugin comes.

A plugin of supervisors is sent to these in the same way. A new worker whose supervisor has not set
up all of them is held back as one that prepares, and is not sent plugins of its own before that. If
the plugin *renews* workers, each supervisor that set it up while it had workers is asked to replace
their processes, when the set-up has succeeded on all; the question is answered after that.

The scheduler's memory is all there is: a client states the plugins that it has registered to each
new scheduler, before the barrier. Plugins are known by their content, so a worker that has one only
answers again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ....protocol.reported import REQUESTED
from ....protocol.wire import messages as m
from ....protocol.wire.failure import MAX_RELAYED_BYTES
from ....protocol.wire.plain import is_flat
from ....protocol.wire.question_arguments import BadArgument, Info
from ....protocol.wording import counted
from ..members.disconnected import bring_back, set_away
from ..records.peers import ClientHandle, SupervisorHandle, WorkerHandle
from ..recovery import barrier
from .records import ENDING, Plugin, Process, plugins_of

if TYPE_CHECKING:
    from ..state import SchedulerState

#: Plugins that are kept at a time, and the bytes of all their pickles, each of which a worker that
#: joins is sent.
MAX_PLUGINS: Final = 256
MAX_NBYTES: Final = 128 << 20
#: Characters of a name or an id.
MAX_CHARS: Final = 500
#: A plugin that is kept is set aside when so many workers in a row died while they set it up.
MAX_DEATHS: Final = 3
#: One worker sets a plugin up for so long before the others are asked to, seconds.
TRIAL_S: Final = 10.0
#: Failures in one answer; workers that an answer names.
MAX_FAILURES: Final = 5
MAX_NAMED: Final = 10_000


# -- orders of clients -----------------------------------------------------------------------------
def on_register(state: SchedulerState, peer: int, message: m.Ask) -> None:
    """Set up a plugin of a client on all workers; the answer follows.

    Raises:
        BadArgument: the plugin is too large, or there are too many.
    """
    _register(state, peer, message, is_for_supervisors=False, renews=False)


def on_register_for_supervisors(state: SchedulerState, peer: int, message: m.Ask) -> None:
    """Set up a plugin of a client on all supervisors; the answer follows.

    Raises:
        BadArgument: the plugin is too large, or there are too many.
    """
    renews = message.arguments.get("restart", False)
    if type(renews) is not bool:
        raise BadArgument("restart= is true or false")
    _register(state, peer, message, is_for_supervisors=True, renews=renews)


def _register(
    state: SchedulerState, peer: int, message: m.Ask, *, is_for_supervisors: bool, renews: bool
) -> None:
    name = _text(message.arguments, "name")
    plugin_id = _text(message.arguments, "plugin")
    if len(message.blobs) != 1 or message.blobs[0] is None:
        raise BadArgument("one pickle is expected")
    kept = plugins_of(state).kept
    plugin = kept.get(name)
    is_other = plugin is not None and plugin.plugin_id != plugin_id
    is_ignored = is_other and message.arguments.get("idempotent") is True
    if plugin is not None and (not is_other or (is_ignored and not plugin.is_aside)):
        if plugin.is_aside:
            plugin.try_again()
            _set_up_everywhere(state, plugin)
    else:
        replaced = plugin
        plugin = Plugin(
            name,
            plugin_id,
            message.blobs[0],
            is_for_supervisors=is_for_supervisors,
            renews=renews,
        )
        _check_size(state, plugin, replaced)
        if replaced is not None:
            _end_on_request(state, replaced)
        kept[name] = plugin
        _set_up_everywhere(state, plugin)
    plugin.orders.append((peer, message.request, plugin.plugin_id != plugin_id))
    _settle(state, plugin)


def _set_up_everywhere(state: SchedulerState, plugin: Plugin) -> None:
    where = "supervisors" if plugin.is_for_supervisors else "workers"
    state.log("info", f"plugin {plugin.name!r} is to be set up on all {where}")
    # Before the barrier nothing is assigned, and new workers may prepare.
    may_wait = state.awaits_peers
    if plugin.is_for_supervisors:
        for supervisor in state.supervisors.values():
            _ask(state, plugin, supervisor, is_required=may_wait and supervisor.is_new)
        if may_wait:
            for ws in state.workers.values():
                _hold_back(state, ws)
        return
    if not may_wait:
        _begin_trial(state, plugin)
    for ws in state.workers.values():
        if ws not in plugin.ready:
            _set_up(state, plugin, ws, may_wait=may_wait)


def _begin_trial(state: SchedulerState, plugin: Plugin) -> None:
    """Choose the worker that sets a plugin up before the others: one with little to lose."""
    able = [
        ws
        for ws in state.workers.values()
        if ws.supervisor_id and not ws.is_away and ws not in plugin.ready
    ]
    if len(able) > 1:
        plugin.trial = min(able, key=lambda ws: (len(ws.processing), ws.nbytes))
        state.call_after(TRIAL_S, _end_trial, plugin, plugin.trial)


def _end_trial(state: SchedulerState, plugin: Plugin, process: Process) -> None:
    """Ask the other workers, if this one has set the plugin up before them until now."""
    if plugin.trial is process:
        plugin.trial = None
        for other in list(plugin.waiting):
            if isinstance(other, WorkerHandle):
                _send_next(state, other)


def _check_size(state: SchedulerState, plugin: Plugin, replaced: Plugin | None) -> None:
    others = [one for one in plugins_of(state).all() if one is not replaced]
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
    plugin = plugins_of(state).kept.get(name)
    if plugin is None:
        first = [*plugins_of(state).kept.values()][:10]
        there = ", ".join(f"{p.name!r}" + " (set aside)" * p.is_aside for p in first) or "none"
        raise BadArgument(f"workers have no plugin {name[:100]!r}; they have: {there}")
    where = "supervisors" if plugin.is_for_supervisors else "workers"
    state.log("info", f"plugin {name!r} is to be torn down on all {where}")
    plugin.orders.append((peer, message.request, False))
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
    plugins = plugins_of(state)
    del plugins.kept[plugin.name]
    plugins.ending[plugin] = None
    plugin.is_ending = True
    plugin.ready, had = {}, {**plugin.ready, **plugin.waiting}
    plugin.required, plugin.outdated, plugin.renewing = {}, {}, {}
    plugin.trial = None
    for process in had:
        _ask(state, plugin, process)
    plugins.has_ended = True
    for client in state.clients_by_peer.values():
        state.send_client(client, m.PluginGone(plugin=plugin.plugin_id))
    for ws in list(plugins.preparing):
        if plugin.is_for_supervisors:
            _go_on_preparing(state, ws)
        else:
            _admit_prepared(state, ws)
    _settle(state, plugin)


# -- workers ---------------------------------------------------------------------------------------
def greet(state: SchedulerState, ws: WorkerHandle) -> None:
    """Send a worker whose session begins the plugins that it has not reported."""
    plugins = plugins_of(state)
    if plugins.kept:
        _hold_back(state, ws)
    for plugin in plugins.ending:
        if ws in plugin.waiting:
            _ask(state, plugin, ws)
    for plugin in plugins.kept.values():
        if plugin.is_for_supervisors or ws in plugin.ready:
            continue
        if plugin.is_aside:
            plugin.waiting.pop(ws, None)  # what its last session was asked is not answered any more
        else:
            plugin.waiting[ws] = 0
            _prepare(state, ws)
    _send_next(state, ws)


def _hold_back(state: SchedulerState, ws: WorkerHandle) -> None:
    """Let a worker that has served no scheduler yet wait for what its supervisor sets up."""
    if lacks_supervisor(state, ws):
        _prepare(state, ws)


def lacks_supervisor(state: SchedulerState, ws: WorkerHandle) -> bool:
    """Return whether the supervisor of a worker has not set up everything."""
    if not ws.supervisor_id:
        return False
    supervisors = state.supervisors_by_id.get(ws.supervisor_id, {}).values()
    return any(
        plugin.is_for_supervisors and not any(one in plugin.ready for one in supervisors)
        for plugin in plugins_of(state).kept.values()
    )


def _is_held_back(state: SchedulerState, ws: WorkerHandle) -> bool:
    """Return whether a worker prepares, and is asked nothing before its supervisor is ready."""
    return ws in plugins_of(state).preparing and lacks_supervisor(state, ws)


def _prepare(state: SchedulerState, ws: WorkerHandle) -> None:
    """Give an unused worker no work before its plugins.

    One that has some was given it before the barrier began, and goes on with it.
    """
    preparing = plugins_of(state).preparing
    if ws.is_new and ws not in preparing and not (ws.processing or ws.zombies):
        preparing[ws] = None
        if not ws.is_away:
            set_away(state, ws)


def _set_up(state: SchedulerState, plugin: Plugin, ws: WorkerHandle, *, may_wait: bool) -> None:
    """Send a plugin; a worker that has served no scheduler yet waits for it, if it `may_wait`."""
    if may_wait:
        _prepare(state, ws)
    _ask(state, plugin, ws)


def _ask(
    state: SchedulerState, plugin: Plugin, process: Process, *, is_required: bool = False
) -> None:
    """Ask a process to set a plugin up, or to tear it down; one that is away, when it is back.

    A worker is asked to set one up when it has done so with the one before: so it is known of which
    one it dies. What is torn down may be what it has not finished to set up.
    """
    plugin.waiting[process] = 0
    if isinstance(process, WorkerHandle) and not plugin.is_ending:
        _send_next(state, process)
    elif process.peer in state.roles:
        if is_required:
            plugin.required[process] = None
        _send_order(state, plugin, process, is_required=is_required)


def _send_next(state: SchedulerState, ws: WorkerHandle) -> None:
    """Have a worker set up its next plugin, if it is connected and has none to set up.

    One that waits for its supervisor is asked when that is ready.
    """
    if ws.peer not in state.roles or _is_held_back(state, ws):
        return
    asked = [plugin for plugin in plugins_of(state).kept.values() if ws in plugin.waiting]
    if not asked or any(plugin.waiting[ws] for plugin in asked):
        return
    if asked[0].trial in (None, ws):
        _send_order(state, asked[0], ws, is_required=ws in plugins_of(state).preparing)


def _send_order(
    state: SchedulerState, plugin: Plugin, process: Process, *, is_required: bool
) -> None:
    request = state.new_request()
    plugin.waiting[process] = request
    is_supervisor = isinstance(process, SupervisorHandle)
    if plugin.is_ending:
        tear_down = m.TearDownOnSupervisor if is_supervisor else m.TearDownPlugin
        state.send(process.peer, tear_down(request=request, plugin=plugin.plugin_id))
        return
    set_up = m.SetUpOnSupervisor if is_supervisor else m.SetUpPlugin
    state.send(
        process.peer,
        set_up(
            request=request,
            plugin=plugin.plugin_id,
            name=plugin.name,
            blobs=[plugin.blob],
            is_required=is_required,
        ),
    )


def on_done(state: SchedulerState, process: Process, message: m.PluginDone) -> None:
    """A process has set a plugin up, or torn it down, or that has failed."""
    request = message.request
    plugin = next(
        (
            plugin
            for plugin in plugins_of(state).all()
            if request in (plugin.waiting.get(process), plugin.renewing.get(process))
        ),
        None,
    )
    if plugin is None or request <= 0:
        return  # it was torn down meanwhile
    if plugin.renewing.get(process) == request:
        del plugin.renewing[process]
        _settle(state, plugin)
        return
    failure = message.info.get("failure")
    if failure is not None:
        _note_failure(state, plugin, process, failure)
        is_needed = process in plugins_of(state).preparing or process in plugin.required
        if not plugin.is_ending and is_needed:
            plugin.waiting[process] = ENDING
            return
    del plugin.waiting[process]
    had_workers = plugin.required.pop(process, True) is not None
    _end_trial(state, plugin, process)
    if not plugin.is_ending:
        plugin.ready[process] = None
        if not plugin.is_aside:
            plugin.n_deaths = 0
    if isinstance(process, WorkerHandle):
        if process in plugins_of(state).preparing:
            _admit_prepared(state, process)
        _send_next(state, process)
    elif not plugin.is_ending:
        if plugin.renews and had_workers and failure is None and not message.info.get("was_ready"):
            plugin.outdated[process] = None
        for ws in list(plugins_of(state).preparing):
            if ws.supervisor_id == process.supervisor_id:
                _go_on_preparing(state, ws)
    _settle(state, plugin)


def _renew_workers(state: SchedulerState, plugin: Plugin) -> None:
    """Have the workers replaced that were started before the plugin was set up."""
    outdated, plugin.outdated = plugin.outdated, {}
    for supervisor in outdated:
        request = state.new_request()
        plugin.renewing[supervisor] = request
        plugin.renewed.append(_id_of(supervisor))
        state.send(supervisor.peer, m.RenewWorkers(request=request))


def on_unsupported(state: SchedulerState, who: object, request: int) -> None:
    """A process of another version does not know plugins: it fails to set one up."""
    if isinstance(who, (WorkerHandle, SupervisorHandle)) and request:
        text = f"{named(who)} runs a version of weft that knows no plugins there; install this one"
        # The form of a packed exception of which no more than the text is known.
        failure = [b"", "UnsupportedRequest", text, f"UnsupportedRequest: {text}", b""]
        on_done(state, who, m.PluginDone(request=request, info={"failure": failure}))


def named(process: Process) -> str:
    """Return what messages call a process."""
    if isinstance(process, WorkerHandle):
        return f"worker {process.name}"
    return f"the supervisor on {process.facts.get('host', process.supervisor_id)}"


def _note_failure(state: SchedulerState, plugin: Plugin, process: Process, failure: Any) -> None:
    step = "torn down" if plugin.is_ending else "set up"
    if plugin.has_failed:
        return  # clients are answered why it was not kept, not what its teardown raised
    plugin.n_failed += 1
    if plugin.n_failed == 1 or not plugin.is_new:
        text = f"plugin {plugin.name!r} could not be {step} on {named(process)}"
        state.log("warning", text, "plugin-failed")
    if len(plugin.failures) < MAX_FAILURES and type(failure) is list and is_flat(failure):
        plugin.failures.append({"worker": _id_of(process), "failure": failure})


def _id_of(process: Process) -> str:
    return process.address if isinstance(process, WorkerHandle) else process.supervisor_id


def on_gone(
    state: SchedulerState,
    process: Process,
    report: m.WorkerExited | None = None,
    *,
    has_left: bool = False,
) -> None:
    """A worker will not come back under this record; or the connection of a supervisor has ended.

    Args:
        state: the scheduler's.
        process: the worker or supervisor.
        report: of the end of a worker's process, if that is known and the worker did not leave.
        has_left: it left in order, or was about to.
    """
    plugins = plugins_of(state)
    fatal = None
    if isinstance(process, WorkerHandle):
        if report.kind != REQUESTED if report is not None else not has_left:
            fatal = plugins.set_up_on(process)
        plugins.preparing.pop(process, None)
    for plugin in plugins.all():
        for those in (plugin.ready, plugin.required, plugin.outdated):
            those.pop(process, None)
        was_awaited = plugin.waiting.pop(process, None) is not None
        if plugin is fatal:
            continue
        _end_trial(state, plugin, process)
        if plugin.renewing.pop(process, None) is not None or was_awaited:
            _settle(state, plugin)
    if fatal is not None:
        _on_death(state, fatal, process, report)


def _on_death(
    state: SchedulerState, plugin: Plugin, process: Process, report: m.WorkerExited | None
) -> None:
    """A worker has ended, or was lost, while it set a plugin up.

    A plugin that is registered at the moment has failed, and nobody else gets it. One that is kept
    is set aside when this has happened several times in a row: else each worker that is started in
    the place of another would die as well.
    """
    if report is None:  # it had no supervisor, or its machine was lost
        text = reason = "it was lost during the set-up, and nothing has reported why"
    else:
        reason = report.reason or "its process ended"
        n_tasks = counted(len(report.running), "task")
        during = f" while it also ran {n_tasks}" if report.running else ""
        text = f"its process ended during the set-up{during}: {reason}"
    where = named(process)
    line = f"plugin {plugin.name!r} could not be set up on {where}: {text}"
    state.log("warning", line, "plugin-failed")
    if plugin.is_new:
        plugin.n_failed += 1
        # The form of a packed exception of which no more than the text is known.
        failure = [b"", "PluginFailed", f"plugin {plugin.name!r}: {where}: {text}", text, b""]
        row: Info = {"worker": _id_of(process), "failure": failure, "died": [where, text]}
        plugin.failures.insert(0, row)  # it is the one that is raised
        del plugin.failures[MAX_FAILURES:]
        plugin.has_failed = True
        _end(state, plugin)
        return
    plugin.n_deaths += 1
    plugin.last_death = reason
    if plugin.n_deaths >= MAX_DEATHS and not plugin.is_aside:
        _set_aside(state, plugin)


def _set_aside(state: SchedulerState, plugin: Plugin) -> None:
    """Give a plugin to no further worker. Those that set it up at the moment may yet have it."""
    plugin.is_aside = True
    text = (
        f"plugin {plugin.name!r} is set aside: {plugin.n_deaths} workers in a row died while they "
        f"set it up, the last one: {plugin.last_death}. Later workers do not get it; unregister "
        "it, or register it again to have it tried anew"
    )
    state.log("error", text, "plugin-set-aside")
    unsent = [process for process, request in plugin.waiting.items() if not request]
    for process in unsent:
        del plugin.waiting[process]
        if isinstance(process, WorkerHandle) and process in plugins_of(state).preparing:
            _admit_prepared(state, process)


def greet_supervisor(state: SchedulerState, supervisor: SupervisorHandle) -> None:
    """Send a supervisor whose session begins the plugins that it is to have.

    One that was here before has missed what has ended meanwhile. One that comes from an earlier
    scheduler keeps the plugins of clients that are gone.
    """
    kept = [plugin for plugin in plugins_of(state).kept.values() if plugin.is_for_supervisors]
    if supervisor.last_epoch == state.epoch and plugins_of(state).has_ended:
        ids = [plugin.plugin_id for plugin in kept]
        state.send(supervisor.peer, m.PluginsKept(plugins=ids))
    for plugin in kept:
        _ask(state, plugin, supervisor, is_required=supervisor.is_new)


def admit_later(state: SchedulerState, ws: WorkerHandle) -> bool:
    """Return whether a worker that is back prepares, and gets work after that."""
    if ws not in plugins_of(state).preparing:
        return False
    ws.inventory = None
    state.deadlines.cancel(ws.away_due)
    barrier.note_worker(state, ws)
    _admit_prepared(state, ws)
    return True


def _admit_prepared(state: SchedulerState, ws: WorkerHandle) -> None:
    """Give work to a worker that prepares, if it has set up everything."""
    plugins = plugins_of(state)
    if any(ws in plugin.waiting for plugin in plugins.kept.values()):
        return
    if ws.peer in state.roles and ws.inventory is None and not lacks_supervisor(state, ws):
        del plugins.preparing[ws]
        bring_back(state, ws)


def _go_on_preparing(state: SchedulerState, ws: WorkerHandle) -> None:
    """Send a worker its plugins, if its supervisor has set up everything now."""
    if lacks_supervisor(state, ws):
        return
    _send_next(state, ws)
    _admit_prepared(state, ws)


def on_client_back(state: SchedulerState, client: ClientHandle) -> None:
    """Send a client that has been here before what it needs to forget the plugins that ended."""
    if plugins_of(state).has_ended:
        ids = [plugin.plugin_id for plugin in plugins_of(state).kept.values()]
        state.send_client(client, m.PluginsKept(plugins=ids))


def is_preparing(state: SchedulerState, ws: WorkerHandle) -> bool:
    """Return whether a connected worker is held back by nothing but its plugins."""
    return ws in plugins_of(state).preparing and ws.peer in state.roles and ws.inventory is None


def n_preparing(state: SchedulerState) -> int:
    """Return the number of connected workers that prepare."""
    return sum(is_preparing(state, ws) for ws in plugins_of(state).preparing)


def _settle(state: SchedulerState, plugin: Plugin) -> None:
    """Answer the clients if all processes have reported."""
    plugins = plugins_of(state)
    if plugin.is_ending:
        if plugin.waiting:
            return
        del plugins.ending[plugin]
    elif plugin.is_new and any(
        process not in plugins.preparing and process not in plugin.required
        for process in plugin.waiting
    ):
        return
    elif plugin.is_new and plugin.n_failed:
        plugin.has_failed = True
        _end(state, plugin)  # which answers in the end
        return
    _renew_workers(state, plugin)
    if plugin.renewing:
        return
    plugin.is_new = False
    orders, plugin.orders = plugin.orders, []
    info: Info = {"n_failed": plugin.n_failed, "failures": plugin.failures}
    if not plugin.is_ending:
        kind = "supervisors" if plugin.is_for_supervisors else "workers"
        info[kind] = [_id_of(process) for process in plugin.ready][:MAX_NAMED]
        if plugin.is_for_supervisors:
            info["renewed"], plugin.renewed = plugin.renewed[:MAX_NAMED], []
    for peer, request, was_ignored in orders:
        if peer in state.roles:
            # The client does not state to a later scheduler what was not registered.
            given = {**info, "was_ignored": True} if was_ignored else info
            state.send(peer, m.Answer(request=request, info=given, next_page=""))
