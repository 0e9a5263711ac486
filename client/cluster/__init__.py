"""The cluster as a client finds, starts, scales, prepares and leaves it."""

from __future__ import annotations
