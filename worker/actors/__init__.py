"""Actors: each has a thread of its own and answers calls in order."""

from __future__ import annotations
