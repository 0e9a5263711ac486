"""The questions that the scheduler answers: a table of cursors over the state.

A question is a function `(state, arguments, page) -> (info, next page)`. It does work for at most
about 1 ms, whatever the size of the tables, and keeps nothing: the text `page` says where to go on,
by an order that survives changes between two pages (numbers that only grow, or the asked keys). So
no question walks over all tasks: a dict cannot be read from the middle, and skipping its beginning
takes 15 ms for a million entries. What workers hold is asked of the workers
(`forwarded_questions`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ....protocol.reported import METRICS_URL
from ....protocol.rotation import OF_CLIENT
from ....protocol.wire import messages as m
from ....protocol.wire.levels import Level
from ....protocol.wire.messages.questions import BAD_ARGUMENT, UNKNOWN_QUESTION
from ....protocol.wire.question_arguments import BadArgument, Info, Page, position_of
from ..actions import Action
from ..feature import LateQuestion, Question
from ..records.peers import ClientHandle
from ..records.permissions import deny
from ..visitors.visits import level_of_asking
from .calls import on_ask_call
from .forwarded_questions import on_ask_other
from .info import describe_client, describe_cluster, describe_worker
from .overview import ask_overview
from .searching import ask_search
from .task_changes import ask_task_changes
from .task_questions import (
    ask_attempts,
    ask_explanations,
    ask_failures,
    ask_holders,
    ask_measured,
    ask_processing,
    ask_sizes,
    ask_states,
    ask_story,
    ask_tasks,
)

if TYPE_CHECKING:
    from ..state import SchedulerState

#: Workers or clients of one page.
N_PEERS: Final = 50
#: URLs of one page of an answer, and the longest that is passed on.
N_URLS: Final = 500
MAX_URL_CHARS: Final = 300


@dataclass(slots=True)
class AskShell(Action):
    """Answer a question about the process of the scheduler to this peer."""

    peer: int
    question: m.Ask


def on_ask(state: SchedulerState, who: Any, message: m.Ask) -> None:
    """A client or viewer asks for one page of an answer, for itself or for a visitor."""
    peer = who.peer if isinstance(who, ClientHandle) else who
    assert peer is not None, "messages come over connections"
    level = level_of_asking(state, peer, message)
    if level is None:
        return
    if message.to:
        on_ask_other(state, peer, message, level)
        return
    question = state.features.questions.get(message.name)
    order = state.features.orders.get(message.name)
    found = order or question
    needed = SHELL_QUESTIONS.get(message.name) if found is None else found.least_level
    if needed is None:
        text = f"there is no question {message.name[:100]!r} to the scheduler"
        _fail(state, peer, message, UNKNOWN_QUESTION, text)
    elif needed > level:
        deny(state, peer, message, needed)
    elif found is None:
        state.after.append(AskShell(peer, message))
    else:
        try:
            if order is not None:
                order.follow(state, peer, message)
            elif question is not None:
                info, page = question.answer(state, message.arguments, message.page)
                state.send(peer, m.Answer(request=message.request, info=info, next_page=page))
        except BadArgument as error:
            _fail(state, peer, message, BAD_ARGUMENT, str(error))


def _fail(state: SchedulerState, peer: int, message: m.Ask, kind: str, text: str) -> None:
    state.send(peer, m.AskFailed(request=message.request, kind=kind, text=text))


# -- the cluster and its peers ---------------------------------------------------------------------
def ask_cluster(state: SchedulerState, arguments: Info, page: str) -> Page:
    """Describe the scheduler, and count workers, clients and tasks by state."""
    return describe_cluster(state), ""


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
        place = client.number & OF_CLIENT
        if place <= after:
            continue
        if len(clients) == N_PEERS:
            return {"clients": clients}, str(last)
        clients.append(describe_client(state, client))
        last = place
    return {"clients": clients}, ""


#: {name: question} of those about the state; features have their own
QUESTIONS: Final[dict[str, Question]] = {
    "overview": Question(ask_overview),
    "cluster": Question(ask_cluster),
    "workers": Question(ask_workers),
    "clients": Question(ask_clients),
    "metrics_pages": Question(ask_metrics_pages),
    "supervisors": Question(ask_supervisors),
    "tasks": Question(ask_tasks),
    "attempts": Question(ask_attempts),
    # A traceback shows lines of the users' programs.
    "failures": Question(ask_failures, Level.CLIENT),
    "measured": Question(ask_measured),
    "explanations": Question(ask_explanations),
    "states": Question(ask_states),
    "story": Question(ask_story),
    # All keys of all clients, as the task stream has them.
    "task_changes": Question(ask_task_changes, Level.CLIENT),
    "holders": Question(ask_holders),
    "sizes": Question(ask_sizes),
    "processing": Question(ask_processing),
    "search": Question(ask_search),
}

ORDERS: Final[dict[str, LateQuestion]] = {"call": LateQuestion(on_ask_call, Level.CLIENT)}

#: {question: the least level of token} of those that the scheduler's process answers
SHELL_QUESTIONS: Final[dict[str, Level]] = {
    "logs": Level.CLIENT,
    "versions": Level.VIEW,
    "process": Level.VIEW,
}
