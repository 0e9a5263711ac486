"""The threads that run tasks, and how a call is begun, interrupted and ended."""

from __future__ import annotations
