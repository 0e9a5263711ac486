"""A thread pool with little cost per call: `weft.ThreadPool`."""

from __future__ import annotations
