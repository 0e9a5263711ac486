"""Graphs of tasks, run where they are asked for: read, linked, and driven to their results.

`reading` and `state` decide and know nothing of threads or processes; `inline`, `pulling`,
`submitting` and `processes` are the four ways to drive them. See docs/embedded.md.
"""

from __future__ import annotations
