"""Coroutines that a blocking client runs in the thread of its caller."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from weft.client.shell import both_ways


async def answer() -> int:
    return 42


def test_the_result_of_a_coroutine_is_returned():
    assert both_ways.result_of(None, answer) == 42


def test_an_interrupt_before_a_coroutine_begins_leaves_none_behind(monkeypatch):
    def interrupted() -> None:
        raise KeyboardInterrupt

    made: list[Coroutine[Any, Any, int]] = []

    def make() -> Coroutine[Any, Any, int]:
        made.append(answer())
        return made[-1]

    monkeypatch.setattr(asyncio, "_get_running_loop", interrupted)
    with pytest.raises(KeyboardInterrupt):
        both_ways.result_of(None, make)
    for coroutine in made:
        coroutine.close()
    assert not made
