"""The drivers, which run a graph: inline, on threads, on an executor."""

from __future__ import annotations
