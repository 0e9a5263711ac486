"""What runs a graph: inline, on threads, on an executor, on a cluster."""

from __future__ import annotations
