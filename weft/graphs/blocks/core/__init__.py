"""Core: which tasks of a graph travel together."""

from __future__ import annotations
