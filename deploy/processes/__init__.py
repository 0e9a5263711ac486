"""Parts that every daemon has: title, pid file, preloaded modules, child processes."""

from __future__ import annotations
