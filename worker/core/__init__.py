"""The worker's decisions: which tasks run, what is fetched and reported. No I/O, no clock."""

from __future__ import annotations
