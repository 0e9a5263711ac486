"""The scheduler's decisions: tasks, workers, clients, placement. No I/O, clock or randomness."""

from __future__ import annotations
