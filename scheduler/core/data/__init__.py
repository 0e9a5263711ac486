"""Results: copies, moves between workers, scattered values, data that is missing."""

from __future__ import annotations
