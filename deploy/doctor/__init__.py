"""`weft doctor`: what may keep a cluster from working, each with what to do about it."""

from __future__ import annotations
