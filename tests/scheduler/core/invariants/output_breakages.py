"""How the invariants of kept output are broken, for `test_validate.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.scheduler.core.output.kept import kept_of

#: {invariant: what breaks it}, of a `Broken` board
OUTPUT_BREAKAGES: dict[str, Callable[[Any], object]] = {
    "the bytes of kept output are counted": (
        lambda b: kept_of(b.state).by_key.update({"memory": ("out", "", False)})
    ),
}
