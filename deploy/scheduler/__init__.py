"""The scheduler as a daemon: its start, its restarts, its files."""

from __future__ import annotations
