"""Visits: what a visitor of the pages may ask and order, as the scheduler knows and checks it.

The process of the pages holds the token of a viewer, so it can look and nothing else. A visitor who
has come by a link with a claim (`protocol/trust/page_claims.py`) may do more. That process hands
the claim to the scheduler (`enter`), which checks it and gives a pass. The browser keeps the pass
in a cookie, and a question that is asked for this visitor names it (`Ask.visit`). The right is
looked up here for each question.

A visit ends after `VISIT_LIFE_S`, when the visitor signs out (`leave`), and with this scheduler. A
link begins one visit only. The pass proves by the scheduler's own key that it was given, so it can
neither be guessed nor be made from what others see.

Only questions of `FOR_VISITORS` are asked with the rights of a visit. All others are asked with
those of the peer that asks them. So no browser runs code on workers, whatever its visitor may do.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ....protocol.trust.page_claims import CLOCK_SKEW_S, LINK_LIFE_S, Claims
from ....protocol.wire import messages as m
from ....protocol.wire.levels import Level
from ....protocol.wire.messages.questions import VISIT_OVER
from ....protocol.wire.question_arguments import BadArgument, Info, Page
from ..actions import LogLine
from ..conditions.feature import clock_s

if TYPE_CHECKING:
    from ..state import SchedulerState

#: A visit lasts so long.
VISIT_LIFE_S: Final = 12 * 3600.0
#: Visits that are kept, those that have ended among them: their links are not to be used again.
MAX_VISITS: Final = 1000
#: Characters of a number of a link, of an address, and of the arguments of an order in the log.
_MAX_CHARS: Final = 64
_MAX_LOGGED: Final = 300

#: {question: the least level of a visitor for whom it is asked}. Those for admins change something,
#: and are logged.
FOR_VISITORS: Final[dict[str, Level]] = {
    "call": Level.CLIENT,
    "call_stack": Level.CLIENT,
    "profile": Level.CLIENT,
    "failures": Level.CLIENT,
    "logs": Level.CLIENT,
    "cancel_tasks": Level.ADMIN,
    "retry_tasks": Level.ADMIN,
    "retire": Level.ADMIN,
    "restart": Level.ADMIN,
    "scale": Level.ADMIN,
}


@dataclass(slots=True)
class Visit:
    """One visit."""

    level: Level
    user: str  #: of the token with which its link was made; "" = none
    address: str  #: of the browser, as the process of the pages sees it
    began: float
    is_over: bool = False

    @property
    def who(self) -> str:
        """The visitor, for logs and reasons."""
        name = f"user {self.user}" if self.user else f"{self.level.label}"
        return f"{name} at {self.address or 'an unknown address'}"


class Visits:
    """The visits to the pages of this scheduler."""

    __slots__ = ("by_number", "claims")

    def __init__(self) -> None:
        #: checks claims; None = there are no visits
        self.claims: Claims | None = None
        #: {number of the link: visit}, in the order of their beginnings
        self.by_number: dict[str, Visit] = {}


def visits_of(state: SchedulerState) -> Visits:
    """Return the visits."""
    return state.record(Visits)


def pass_of(state: SchedulerState, number: str) -> str:
    """Return the pass of the visit that a link began; only this scheduler can make it."""
    proof = hmac.digest(state.epoch_key, b"visit %d " % state.epoch + number.encode(), "sha256")
    return f"{number}.{proof.hex()}"


def find_visit(state: SchedulerState, given: object) -> Visit | None:
    """Return the visit of a pass; None = it is none, or the visit is over."""
    if type(given) is not str or not given.isascii():
        return None
    number = given.partition(".")[0]
    visit = visits_of(state).by_number.get(number)
    if visit is None or not hmac.compare_digest(pass_of(state, number), given):
        return None
    is_over = visit.is_over or state.now - visit.began >= VISIT_LIFE_S
    return None if is_over else visit


def level_of_asking(state: SchedulerState, peer: int, message: m.Ask) -> Level | None:
    """Return the level with which a question is asked; None = it was answered: it is refused."""
    own = state.levels[peer]
    needed = FOR_VISITORS.get(message.name)
    if not message.visit or needed is None:
        return own
    visit = find_visit(state, message.visit)
    if visit is None:
        text = "this visit is over, or has never begun; use a new link"
        state.send(peer, m.AskFailed(request=message.request, kind=VISIT_OVER, text=text))
        return None
    if visit.level < needed:
        state.counters.denied += 1
        state.send(
            peer,
            m.Denied(request=message.request, needed=needed.label, level=visit.level.label),
        )
        return None
    if needed is Level.ADMIN and message.arguments:
        to = f" of {message.to}" if message.to else ""
        given = repr(message.arguments)[:_MAX_LOGGED]
        text = f"a visitor of the pages, {visit.who}, orders {message.name!r}{to}: {given}"
        state.after.append(LogLine("info", text))
    return visit.level


# -- questions and orders --------------------------------------------------------------------------
def on_enter(state: SchedulerState, peer: int, message: m.Ask) -> None:
    """Begin the visit that a link claims; answer with its pass.

    `made` is the time and the number of the link.

    Raises:
        BadArgument: the claim is none, or its link is not accepted any more.
    """
    names = ("made", "claim", "address")
    made, claim, address = (message.arguments.get(name) for name in names)
    if type(made) is not str or type(claim) is not str or type(address) is not str:
        raise BadArgument("made=, claim= and address= are texts")
    visits = visits_of(state)
    found = None if visits.claims is None else visits.claims.read(made, claim)
    if found is None:
        raise BadArgument("This link was not made by this cluster.")
    # They are signed, so they are as a holder of that token has made them.
    when, _, number = made.partition(".")
    _check(state, int(when), number)
    visits.by_number[number] = visit = Visit(*found, address[:_MAX_CHARS], state.now)
    state.after.append(LogLine("info", f"a visitor of the pages, {visit.who}, has come by a link"))
    info = {**_describe(state, visit), "pass": pass_of(state, number)}
    state.send(peer, m.Answer(request=message.request, info=info))


def _check(state: SchedulerState, made: int, number: str) -> None:
    """Check that the link of a claim is fresh, and was not used before."""
    visits = visits_of(state).by_number
    now = clock_s(state)
    assert state.started is not None
    if not 0 < len(number) <= _MAX_CHARS:
        raise BadArgument("This link was not made by this cluster.")
    if made > now + CLOCK_SKEW_S:
        raise BadArgument(
            "This link comes from the future: compare the clocks of the two machines."
        )
    if made < now - LINK_LIFE_S:
        raise BadArgument(
            f"This link has expired: it was made more than {LINK_LIFE_S // 60} minutes ago."
        )
    if made < int(now - (state.now - state.started)):
        raise BadArgument(
            "This link was made before the scheduler was started, or on a machine whose clock is "
            "behind."
        )
    if number in visits:
        raise BadArgument("This link was used before, and works once.")
    if len(visits) >= MAX_VISITS:
        oldest = next(iter(visits))
        if state.now - visits[oldest].began < LINK_LIFE_S + 2 * CLOCK_SKEW_S:
            raise BadArgument(f"{MAX_VISITS} visitors have come within minutes; try again later.")
        del visits[oldest]


def ask_visit(state: SchedulerState, arguments: Info, page: str) -> Page:
    """Describe a visit by its pass; {} = it is over."""
    visit = find_visit(state, arguments.get("pass"))
    return ({} if visit is None else _describe(state, visit)), ""


def on_leave(state: SchedulerState, peer: int, message: m.Ask) -> None:
    """End a visit, by its pass."""
    visit = find_visit(state, message.arguments.get("pass"))
    if visit is not None:
        visit.is_over = True
    state.send(peer, m.Answer(request=message.request, info={}))


def _describe(state: SchedulerState, visit: Visit) -> Info:
    return {
        "level": visit.level.label,
        "user": visit.user,
        "left_s": visit.began + VISIT_LIFE_S - state.now,
    }


# -- invariants ------------------------------------------------------------------------------------
VISIT_INVARIANTS: Final[dict[str, Callable[[SchedulerState], Iterable[Any]]]] = {
    "there are few visits, of clients and admins": lambda s: [
        number
        for i, (number, visit) in enumerate(visits_of(s).by_number.items())
        if i >= MAX_VISITS or visit.level < Level.CLIENT
    ],
}
