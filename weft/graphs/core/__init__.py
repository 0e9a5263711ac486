"""What the graph drivers share: reading a graph, and which task may run. No I/O or threads."""

from __future__ import annotations
