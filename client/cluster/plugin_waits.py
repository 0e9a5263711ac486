"""Waits for the answers to orders about plugins, which may take as long as code of users does.

After a few seconds, and again after longer pauses, a warning names the processes that are late.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Sequence
from math import inf
from typing import Any, Final

from ...protocol.errors import NoAnswer, QuestionFailed
from ...protocol.wire.answers import part_of, reading
from ...protocol.wire.payload import Blob
from ...protocol.wording import lasting, listed
from ..core.events import ForgetWatcher
from ..core.features.questions import AskScheduler
from ..insight.asking import ask, checked
from ..shell.engine import Engine
from ..shell.watchers import AsyncWaiter

logger = logging.getLogger("weft.client")

#: The first warning comes after this time, each further one after three times the time so far.
FIRST_WARNING_S: Final = 5.0
_GROWTH: Final = 3
#: The scheduler has this long to name those that are late, seconds.
_LIST_S: Final = 5.0


async def order(
    engine: Engine,
    question: str,
    arguments: dict[str, Any],
    blobs: Sequence[Blob],
    timeout_s: float | None,
) -> dict[str, Any]:
    """Return the scheduler's answer to an order about the plugin `arguments["name"]`.

    Raises:
        NoAnswer: it did not come in time. The order stands.
        WeftError: see `ask`.
    """
    waiter = AsyncWaiter(1, wants_data=False)
    asked = AskScheduler(waiter, question, arguments, "", "", [*blobs])
    began = time.monotonic()
    warning_s, limit_s = FIRST_WARNING_S, inf if timeout_s is None else timeout_s
    is_over = False
    try:
        engine.post(asked)
        engine.check_open()
        while not is_over:
            passed_s = time.monotonic() - began
            if await waiter.wait(min(warning_s, limit_s) - passed_s):
                is_over = True
                break
            passed_s = time.monotonic() - began
            text = await _describe(engine, question, arguments["name"], passed_s)
            if passed_s >= limit_s:
                is_over = True  # the answer, when it comes, is still taken by the core
                raise NoAnswer(text)
            logger.warning("%s", text)
            warning_s = _GROWTH * passed_s
    finally:
        if not is_over:
            engine.post(ForgetWatcher(waiter))
    return checked(engine, asked, True, None).info


async def _describe(engine: Engine, question: str, name: str, passed_s: float) -> str:
    """Return what is late, with the names of the processes if the scheduler lists them."""
    since = lasting(passed_s)
    parts: list[str] = []
    # The scheduler may be late as well, or of an earlier version.
    with contextlib.suppress(QuestionFailed):
        async for info in ask(engine, "plugins", timeout=_LIST_S):
            with reading("the scheduler"):
                rows = part_of(info, "plugins", list)
                parts += [_late_in(row, since) for row in rows if row["name"] == name]
    text = "; ".join(filter(None, parts)) or f"plugin {name!r} is not done everywhere after {since}"
    is_ending = question == "unregister_plugin"
    end = "client.restart_workers()" if is_ending else f"client.unregister_plugin({name!r})"
    return f"{text}. It goes on; {end} ends it"


def _late_in(row: dict[str, Any], since: str) -> str:
    """Return what a row of the answer says about those that are late; "" = none is."""
    n_late = row["n_late"]
    if not n_late:
        return ""
    is_ending = row["state"] == "being torn down"
    step, n_all = ("torn down", n_late) if is_ending else ("set up", n_late + row["n_ready"])
    late = listed([f"{who} ({why})" if why else who for who, why in row["late"]], n_late)
    on = f"{n_late} {row['kind']}" if is_ending else f"{n_late} of {n_all} {row['kind']}"
    return f"plugin {row['name']!r} is not {step} on {on} after {since}: {late}"
