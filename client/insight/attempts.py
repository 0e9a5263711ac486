"""How the attempts of a task ended: the answer to `Future.attempts`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ..shell.engine import Engine
from .asking import ask


class _End(NamedTuple):
    worker: str  #: its name; "" = not known any more
    #: how it ended: "finished", "raised ValueError: ...", "the worker died: ...", "finished; its
    #: result was lost later"
    end: str


class AttemptEnd(_End):
    """One attempt to run a task.

    Attributes:
        options: those of the task that are shown, like the tags of its span.
    """

    options: Mapping[str, Any] = MappingProxyType({})


async def attempts_of(engine: Engine, key: str) -> list[AttemptEnd]:
    """Return the attempts of a task that have ended."""
    found: list[AttemptEnd] = []
    async for info in ask(engine, "attempts", {"keys": [key]}):
        found += _read(info)
    return found


def _read(info: dict[str, Any]) -> list[AttemptEnd]:
    found = []
    for key, ends in info["attempts"]:
        made = [AttemptEnd(*end) for end in ends]
        options = info.get("options", {}).get(key)  # a scheduler may be older
        for one in made if options else ():
            one.options = options
        found += made
    return found
