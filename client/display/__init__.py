"""The display of clients, clusters and futures in notebooks and terminals."""

from __future__ import annotations
