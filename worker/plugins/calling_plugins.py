"""Calls the methods of plugins, and packs what they raise. For workers and for supervisors."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from ...protocol.values.exceptions import name_packed, pack_exception


def call(plugin: Any, method: str, context: Any) -> None:
    """Call `setup` or `teardown`, if the plugin has it; a coroutine runs in a loop of its own."""
    function = getattr(plugin, method, None)
    if function is None:
        return
    result = function(context)
    if inspect.iscoroutine(result):
        asyncio.run(result)


def packed(error: BaseException, what: str, where: str) -> list[Any]:
    """Return an exception for the client; its note says what has failed, and where."""
    return name_packed(pack_exception(error, what, where), what, f"weft: {what} on {where}")
