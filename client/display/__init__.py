"""What clients, clusters and futures look like in notebooks and terminals."""

from __future__ import annotations
