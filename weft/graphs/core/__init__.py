"""The common core of the graph drivers: linked tasks, and which may run. No I/O or threads."""

from __future__ import annotations
