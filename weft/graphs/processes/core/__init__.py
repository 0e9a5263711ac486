"""Decides which process runs which chunk of a graph. No I/O, clock or threads."""

from __future__ import annotations
