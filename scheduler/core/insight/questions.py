"""The questions that the scheduler answers: a table of cursors over the state.

A question is a function `(state, arguments, page) -> (info, next page)`. It does work for at most
about 1 ms, whatever the size of the tables, and keeps nothing: the text `page` says where to go on,
by an order that survives changes between two pages (numbers that only grow, or the asked keys). So
no question walks over all tasks: a dict cannot be read from the middle, and skipping its beginning
takes 15 ms for a million entries. What workers hold is asked of the workers (`passing`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ....protocol.reported import METRICS_URL
from ....protocol.wire import messages as m
from ....protocol.wire.levels import Level
from ....protocol.wire.messages.questions import BAD_ARGUMENT, UNKNOWN_QUESTION
from ..data.copies import on_replicate
from ..data.rebalancing import on_rebalance
from ..interruption.interrupting import on_restart
from ..leaving.retiring import on_retire, ranked
from ..plugins.plugins import on_register, on_register_for_supervisors, on_unregister
from ..plugins.questions import ask_plugins
from ..records.asked import BadArgument, Info, Page, position_of
from ..records.peers import ClientHandle
from ..records.permissions import deny
from ..state import AskShell
from .calls import on_ask_call
from .desired import MAX_TARGET_S, desired_workers
from .info import describe_client, describe_cluster, describe_worker
from .overview import ask_overview
from .passing import on_ask_other
from .task_questions import (
    ask_attempts,
    ask_explanations,
    ask_holders,
    ask_processing,
    ask_sizes,
    ask_states,
    ask_story,
    ask_tasks,
)
from .task_stream import ask_task_stream

if TYPE_CHECKING:
    from ..state import SchedulerState

#: Workers or clients of one page.
N_PEERS: Final = 50
#: Workers of the answer to `leaving_order`.
N_LEAVING: Final = 1000
#: URLs of one page of an answer, and the longest that is passed on.
N_URLS: Final = 500
MAX_URL_CHARS: Final = 300


class Question(NamedTuple):
    """A question of the table."""

    answer: Callable[[SchedulerState, Info, str], Page]
    #: of the token of the peer that asks
    least_level: Level = Level.VIEW


class Orderly(NamedTuple):
    """A question whose answer follows later, when what it asks for is done."""

    follow: Callable[[SchedulerState, int, m.Ask], None]
    least_level: Level


def on_ask(state: SchedulerState, who: Any, message: m.Ask) -> None:
    """A client or viewer asks for one page of an answer."""
    peer = who.peer if isinstance(who, ClientHandle) else who
    assert peer is not None, "messages come over connections"
    if message.to:
        on_ask_other(state, peer, message)
        return
    if message.name in ORDERS:
        _follow(state, peer, message)
        return
    question = QUESTIONS.get(message.name)
    request = message.request
    if question is None and message.name in SHELL_QUESTIONS:
        if SHELL_QUESTIONS[message.name] > state.levels[peer]:
            deny(state, peer, message, SHELL_QUESTIONS[message.name])
        else:
            state.after.append(AskShell(peer, message))
        return
    if question is None:
        text = f"there is no question {message.name[:100]!r} to the scheduler"
        state.send(peer, m.AskFailed(request=request, kind=UNKNOWN_QUESTION, text=text))
        return
    if question.least_level > state.levels[peer]:
        deny(state, peer, message, question.least_level)
        return
    try:
        info, next_page = question.answer(state, message.arguments, message.page)
    except BadArgument as error:
        state.send(peer, m.AskFailed(request=request, kind=BAD_ARGUMENT, text=str(error)))
        return
    state.send(peer, m.Answer(request=request, info=info, next_page=next_page))


def _follow(state: SchedulerState, peer: int, message: m.Ask) -> None:
    """Follow an order, which is answered when it is done."""
    order = ORDERS[message.name]
    if order.least_level > state.levels[peer]:
        deny(state, peer, message, order.least_level)
        return
    try:
        order.follow(state, peer, message)
    except BadArgument as error:
        failed = m.AskFailed(request=message.request, kind=BAD_ARGUMENT, text=str(error))
        state.send(peer, failed)


# -- the cluster and its peers ---------------------------------------------------------------------
def ask_cluster(state: SchedulerState, arguments: Info, page: str) -> Page:
    """Describe the scheduler, and count workers, clients and tasks by state."""
    return describe_cluster(state), ""


def ask_desired(state: SchedulerState, arguments: Info, page: str) -> Page:
    """Return how many workers the present work is worth, for autoscalers."""
    target_s = arguments.get("target_s", 0.0)
    if type(target_s) not in (int, float) or not 0 <= target_s < MAX_TARGET_S:
        raise BadArgument(f"target_s= is a number of seconds, not {str(target_s)[:40]!r}")
    return desired_workers(state, target_s).to_plain(), ""


def ask_workers(state: SchedulerState, arguments: Info, page: str) -> Page:
    """Describe the workers, in the order in which they connected."""
    after = position_of(page)
    workers: Info = {}
    last = 0
    for peer in filter(after.__lt__, state.workers):
        if len(workers) == N_PEERS:
            return {"workers": workers}, str(last)
        ws = state.workers[peer]
        workers[ws.address] = describe_worker(state, ws)
        last = peer
    return {"workers": workers}, ""


def ask_metrics_pages(state: SchedulerState, arguments: Info, page: str) -> Page:
    """Return the URLs of the pages with metrics of workers, in the order of their supervisors."""
    after = position_of(page)
    urls: list[str] = []
    last = 0
    for peer, supervisor in state.supervisors.items():
        url = supervisor.facts.get(METRICS_URL)
        if peer <= after or not isinstance(url, str) or len(url) > MAX_URL_CHARS:
            continue
        if len(urls) == N_URLS:
            return {"urls": urls}, str(last)
        urls.append(url)
        last = peer
    return {"urls": urls}, ""


def ask_leaving_order(state: SchedulerState, arguments: Info, page: str) -> Page:
    """Return the names of the workers whose end costs least, in the order in which to end them."""
    order = ranked(state, list(state.staying.values()))
    return {"names": [ws.name for ws in order[:N_LEAVING]]}, ""


def ask_supervisors(state: SchedulerState, arguments: Info, page: str) -> Page:
    """List the supervisors, which start workers, in the order in which they connected."""
    after = position_of(page)
    found: list[str] = []
    last = 0
    for peer in filter(after.__lt__, state.supervisors):
        if len(found) == N_PEERS:
            return {"supervisors": found}, str(last)
        found.append(state.supervisors[peer].supervisor_id)
        last = peer
    return {"supervisors": found}, ""


def ask_clients(state: SchedulerState, arguments: Info, page: str) -> Page:
    """Describe the clients, in the order in which they came."""
    after = position_of(page)
    clients: list[Info] = []
    last = 0
    for client in state.clients.values():
        if client.number <= after:
            continue
        if len(clients) == N_PEERS:
            return {"clients": clients}, str(last)
        clients.append(describe_client(state, client))
        last = client.number
    return {"clients": clients}, ""


#: {name: question}
QUESTIONS: Final[dict[str, Question]] = {
    "overview": Question(ask_overview),
    "cluster": Question(ask_cluster),
    "desired": Question(ask_desired),
    "workers": Question(ask_workers),
    "clients": Question(ask_clients),
    "metrics_pages": Question(ask_metrics_pages),
    "supervisors": Question(ask_supervisors),
    # It looks at what workers hold, and serves only those that may retire some.
    "leaving_order": Question(ask_leaving_order, Level.CLIENT),
    "tasks": Question(ask_tasks),
    "attempts": Question(ask_attempts),
    "explanations": Question(ask_explanations),
    "states": Question(ask_states),
    "story": Question(ask_story),
    "holders": Question(ask_holders),
    "sizes": Question(ask_sizes),
    "processing": Question(ask_processing),
    "plugins": Question(ask_plugins, Level.CLIENT),
    # It has workers report more than they do otherwise.
    "task_stream": Question(ask_task_stream, Level.CLIENT),
}

#: {question: order}. A client may retire workers: it may run any code on them, so it could end
#: them in any case, but then their results would be lost unnoticed.
ORDERS: Final[dict[str, Orderly]] = {
    "retire": Orderly(on_retire, Level.CLIENT),
    "restart": Orderly(on_restart, Level.CLIENT),
    # Plugins are code for workers, as tasks are.
    "register_plugin": Orderly(on_register, Level.CLIENT),
    "register_supervisor_plugin": Orderly(on_register_for_supervisors, Level.CLIENT),
    "unregister_plugin": Orderly(on_unregister, Level.CLIENT),
    "call": Orderly(on_ask_call, Level.CLIENT),
    "replicate": Orderly(on_replicate, Level.WORKER),
    "rebalance": Orderly(on_rebalance, Level.WORKER),
}

#: {question: the least level of token} of those that the scheduler's process answers
SHELL_QUESTIONS: Final[dict[str, Level]] = {
    "logs": Level.CLIENT,
    "versions": Level.VIEW,
    "process": Level.VIEW,
}
