"""The `TimeoutError` of a wait for tasks: its text says why they are not done, if that is known.

The scheduler's explanation (`explaining.py`) is asked for when the time is over, and only if the
caller has waited for some time, so that no other wait costs more, and polls do not either.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from ...protocol.errors import WeftError
from ...protocol.wire.answers import part_of, reading
from ..core.tasks import FutureState
from ..insight.asking import ask
from ..insight.explaining import describe_last_step, read
from .failures import last_notice

if TYPE_CHECKING:
    from ..shell.engine import Engine

#: Tasks that are explained in one text.
_N_EXPLAINED: Final = 3
#: Shorter waits end in time: those who wait so briefly come again.
_MIN_TIMEOUT_S: Final = 0.1
#: Seconds that the answers may take altogether: there is one for each task.
MAX_ASKING_S = 0.5
_QUESTION: Final = "explanations"


async def too_late(
    engine: Engine, text: str, states: Iterable[FutureState], timeout_s: float, *, of_one: str = ""
) -> TimeoutError:
    """Return the error of a wait for `states`, which are not done.

    Args:
        engine: of the client.
        text: what was not done in time.
        states: of the tasks; not of calls of actors.
        timeout_s: how long the caller has waited.
        of_one: follows `text` if nothing is known; "" = several tasks are meant.
    """
    states = list(states)
    why = _known_here(engine, states)
    if not why and (keys := _keys(states, timeout_s)):
        pages = []
        limit_s = MAX_ASKING_S / len(keys)
        with contextlib.suppress(WeftError):
            async for page in ask(engine, _QUESTION, {"keys": keys}, limit_s):
                pages.append(page)  # noqa: PERF401, those that came before an error count
        why = _why(pages, bool(of_one))
    return TimeoutError(text + (why or of_one))


def _known_here(engine: Engine, states: list[FutureState]) -> str:
    if notice := last_notice(engine.core, states):
        return notice
    if not engine.core.is_linked and engine.core.end is None:
        return ". This client has no connection to the scheduler, and looks for it"
    return ""


def _keys(states: list[FutureState], timeout_s: float) -> list[str]:
    if timeout_s < _MIN_TIMEOUT_S:
        return []
    return [state.key for state in islice(states, _N_EXPLAINED)]


def _why(pages: list[dict[str, Any]], is_of_one: bool) -> str:
    """Return the explanations; tasks with the reason of one before them are left out."""
    reasons: dict[str, str] = {}
    with contextlib.suppress(WeftError), reading("the scheduler"):
        for page in pages:
            for info in part_of(page, _QUESTION, list):
                found = read(info)
                subject = "its task" if is_of_one else repr(found.key)
                reasons.setdefault(found.steps[-1][2], describe_last_step(found, subject))
    return "".join(f"; {text}" for text in reasons.values())
