"""Questions about the cluster and to its processes, and their answers, page by page.

The scheduler, workers and supervisors each have a table of the questions that they answer; those to
workers and supervisors go through the scheduler, which checks the level of the token. An answer
that is too long for one message is asked for in pages: each `Answer` names the next page, and the
scheduler keeps nothing between two pages.
"""

from __future__ import annotations

from dataclasses import field
from typing import Final

from ..message import Blobs, Info, Message, Number, Text, message
from ..roles import CLIENTS, SUPERVISORS, VIEWERS, WORKERS

#: Kinds of `AskFailed`. The receiver's table has no question of this name.
UNKNOWN_QUESTION: Final = "unknown-question"
#: An argument, or the page, is not valid.
BAD_ARGUMENT: Final = "bad-argument"
#: The question is asked for a visitor whose visit is over.
VISIT_OVER: Final = "visit-over"
#: The question was understood, but could not be answered.
NO_ANSWER: Final = "no-answer"

#: Workers that one supervisor starts at most: those of one machine.
MAX_PLACES: Final = 1000


@message(98, by=CLIENTS + VIEWERS, to=WORKERS + SUPERVISORS)
class Ask(Message):
    """Ask the question `name` for one page of its answer; "" is the first one."""

    request: Number
    name: Text
    arguments: Info = field(default_factory=dict)
    page: Text = ""
    blobs: Blobs = field(default_factory=list)  #: pickles that belong to the arguments
    #: the id of the worker or supervisor to which the scheduler passes it on; "" = the receiver
    to: Text = ""
    #: the pass of the visitor of the pages for whom it is asked, with whose rights; "" = nobody
    visit: Text = ""


@message(99, by=WORKERS + SUPERVISORS, to=CLIENTS + VIEWERS)
class Answer(Message):
    """Answer one page of an `Ask`; `next_page` is "" with the last one."""

    request: Number
    info: Info
    next_page: Text = ""
    blobs: Blobs = field(default_factory=list)  #: pickles that belong to the answer


@message(100, by=WORKERS + SUPERVISORS, to=CLIENTS + VIEWERS)
class AskFailed(Message):
    """Answer an `Ask` that has no answer: its kind, and the text for the user.

    A question that the token of the asking peer does not permit is answered by `Denied`.
    """

    request: Number
    kind: Text
    text: Text
