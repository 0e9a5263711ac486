"""Graphs of tasks, run on the caller's machine: read, linked, and driven to their results.

`reading` and `state` decide, without threads or processes; `inline`, `pulling`, `submitting` and
`processes` are the four drivers. See docs/embedded.md.
"""

from __future__ import annotations
