"""A slot in which one actor lives."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.worker.actors.actors_kit import Slot, ended


@pytest.fixture
async def slot(wait_until: Any) -> AsyncIterator[Slot]:
    slot = Slot()
    yield slot
    await ended(slot)
