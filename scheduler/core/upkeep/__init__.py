"""The scheduler's own process: turns of its peers, peers that do not read, memory given back."""

from __future__ import annotations
