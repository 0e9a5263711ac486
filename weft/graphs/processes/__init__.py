"""Graphs run in worker processes, which keep their values and share the large ones in memory."""

from __future__ import annotations
