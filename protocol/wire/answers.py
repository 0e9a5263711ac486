"""The answer to a question, as the peer that asked receives it: page by page, or an error.

An asked process may be of another version, broken, or not honest. So no answer is followed without
end, and what cannot be read is an error of that process alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final

from ..errors import NoAnswer, NotPermitted, QuestionFailed, UnsupportedRequest
from .messages import Answer, AskFailed, Denied, Unsupported
from .messages.questions import NO_ANSWER

#: Pages of one answer; ten million results have 7 200 at most.
_MAX_PAGES: Final = 50_000


class Pages:
    """The pages of one answer that were asked for.

    Args:
        process: the name of the process that is asked, "" if it is the scheduler.
    """

    def __init__(self, process: str = "") -> None:
        self.page = ""  #: the one to ask for next
        self._process = process
        self._asked = {""}

    def turn(self, answer: Answer) -> bool:
        """Turn to the page that follows; return whether there is one.

        Raises:
            QuestionFailed: the answer has no end.
        """
        self.page = page = answer.next_page
        if page in self._asked or len(self._asked) >= _MAX_PAGES:
            if not page:
                return False
            text = f"its answer has no end: after {len(self._asked)} pages it named another one"
            raise QuestionFailed(text, self._process)
        self._asked.add(page)
        return True


def answer_in(message: object, question: str, process: str = "") -> Answer | None:
    """Return the answer in a message; None if it is none.

    Args:
        message: received for the question.
        question: its name.
        process: the name of the process that was asked, "" if it is the scheduler.

    Raises:
        NoAnswer: the process is gone, or could not answer.
        QuestionFailed: it does not know the question, or an argument is not valid.
        NotPermitted: the token does not permit this question.
        UnsupportedRequest: the scheduler runs a version of weft that does not know it.
    """
    if isinstance(message, Answer):
        return message
    if isinstance(message, AskFailed):
        failed = NoAnswer if message.kind == NO_ANSWER else QuestionFailed
        raise failed(message.text, process)
    if isinstance(message, Denied):
        what = f"the question {question!r} to {process or 'the scheduler'}"
        raise NotPermitted(what, message.needed, message.level)
    if isinstance(message, Unsupported):
        raise UnsupportedRequest(f"the question {question!r}", "the scheduler")
    return None


@contextlib.contextmanager
def reading(process: str) -> Iterator[None]:
    """Read the content of an answer; what is not as expected is an error of that process.

    Raises:
        QuestionFailed: a part is missing, or of another type.
    """
    try:
        yield
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        text = (
            f"its answer cannot be read ({type(error).__name__}: {error}); it may run another "
            "version of weft: `weft info` and client.get_versions() show which"
        )
        raise QuestionFailed(text, process) from error


def part_of(info: dict[str, Any], name: str, kind: type) -> Any:
    """Return a part of an answer.

    Raises:
        TypeError, KeyError: it is missing, or of another type; see `reading`.
    """
    part = info[name]
    if not isinstance(part, kind):
        raise TypeError(f"{name!r} is {type(part).__name__}, not {kind.__name__}")
    return part
