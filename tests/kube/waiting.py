"""Waiting for what an API server reports."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from tests import leaks

T = TypeVar("T")

#: Seconds between two looks: each is a connection with TLS, or a program that makes one.
LOOK_S = 0.1


def wait_until(condition: Callable[[], T], timeout_s: float = 10.0, what: str = "") -> T:
    """Do what `leaks.wait_until` does, with `LOOK_S` between two calls of `condition`."""
    due = 0.0

    def look() -> T | None:
        nonlocal due
        if time.monotonic() < due:
            return None
        found = condition()
        due = time.monotonic() + LOOK_S
        return found

    found = leaks.wait_until(look, timeout_s, what or condition.__qualname__)
    assert found is not None
    return found
