"""The worker's process family: the supervisor, the spawner, and the worker as a process."""

from __future__ import annotations
