"""Questions to the scheduler, and through it to other processes; and the order to stop."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ....protocol.wire.message import Message
from ....protocol.wire.messages import Ask, AskFailed, ShutdownCluster
from ....protocol.wire.messages.questions import BAD_ARGUMENT, NO_ANSWER
from ....protocol.wire.payload import Blob
from ..feature import ClientFeature
from ..submitting import close_submissions
from ..tasks import Watcher
from ..watching import touch

if TYPE_CHECKING:
    from ..state import ClientState


@dataclass(slots=True)
class AskScheduler:
    """Notify `watcher` of the answer to one page of a question.

    It is the message: an `Answer`, `AskFailed`, `Denied` or `Unsupported`; None at the end.
    """

    watcher: Watcher
    name: str
    arguments: dict[str, Any]
    page: str = ""
    #: the id of the process that the scheduler passes it on to; "" = none
    to: str = ""
    blobs: list[Blob | None] = field(default_factory=list)
    #: ask again after a lost connection, when it is unknown whether it was answered
    is_repeated: bool = True

    def message(self, request: int) -> Message:
        """Return the message of that number."""
        return Ask(
            request=request,
            name=self.name,
            arguments=self.arguments,
            page=self.page,
            to=self.to,
            blobs=self.blobs,
        )

    def unanswered(self, request: int) -> AskFailed:
        """Return the answer to a question that was sent and must not be asked twice."""
        text = (
            "the connection to the scheduler was lost before the answer came; whether the function "
            "has run is not known"
        )
        return AskFailed(request=request, kind=NO_ANSWER, text=text)


@dataclass(slots=True)
class ShutDown:
    """Stop the cluster; notify `watcher` with None when the connection ends, or with `Denied`."""

    watcher: Watcher
    reason: str
    is_repeated: bool = False

    def message(self, request: int) -> Message:
        """Return the message of that number."""
        return ShutdownCluster(reason=self.reason, request=request)

    def unanswered(self, _request: int) -> None:
        """Return None: the end of the connection is the effect of the order."""


class OpenQuestions:
    """The questions of a client."""

    def __init__(self) -> None:
        #: {request: question} that was not answered, in order; sent while linked
        self.asked: dict[int, AskScheduler | ShutDown] = {}


def questions_of(core: ClientState) -> dict[int, AskScheduler | ShutDown]:
    """Return the questions that were not answered, by their requests."""
    return core.record(OpenQuestions).asked


def on_ask(core: ClientState, question: AskScheduler | ShutDown) -> None:
    """Ask the scheduler, now or when there is a connection again."""
    close_submissions(core)  # which the question may be about
    if core.end is not None:
        touch(core, question.watcher, None)
        return
    request = core.next_request()
    questions_of(core)[request] = question
    if core.is_linked:
        core.to_scheduler.append(question.message(request))


def take_answer(core: ClientState, message: Any) -> bool:
    """Notify the watcher that asked; False if it no longer waits, or the request was another."""
    question = questions_of(core).pop(message.request, None)
    if question is not None:
        touch(core, question.watcher, message)
    return question is not None


def _on_linked(core: ClientState, _is_restarted: bool) -> None:
    for request, question in questions_of(core).items():
        core.to_scheduler.append(question.message(request))


def _on_lost(core: ClientState) -> None:
    if core.is_linked:
        asked = questions_of(core)
        for request, question in [q for q in asked.items() if not q[1].is_repeated]:
            del asked[request]
            touch(core, question.watcher, question.unanswered(request))


def _on_ended(core: ClientState) -> None:
    for question in questions_of(core).values():
        touch(core, question.watcher, None)
    questions_of(core).clear()


def _on_forgotten(core: ClientState, watcher: Watcher) -> None:
    asked = questions_of(core)
    for request in [n for n, question in asked.items() if question.watcher is watcher]:
        del asked[request]


def _on_unsendable(core: ClientState, message: Ask, reason: str) -> None:
    text = f"it could not be sent: {reason}"
    take_answer(core, AskFailed(request=message.request, kind=BAD_ARGUMENT, text=text))


FEATURE: Final = ClientFeature(
    name="questions",
    records=(OpenQuestions,),
    handlers={AskScheduler: on_ask, ShutDown: on_ask},
    unsendable={Ask: _on_unsendable},
    requests=(questions_of,),
    linked=(_on_linked,),
    lost=(_on_lost,),
    ended=(_on_ended,),
    forgotten=(_on_forgotten,),
    refused=(take_answer,),
)
