"""Writes the answers of all walks anew: `python -m tests.scheduler.core.walks`."""

from __future__ import annotations

from tests.scheduler.core.walks import FILES, played

for file in FILES:
    file.write_text(played(file.read_text(encoding="utf-8")), encoding="utf-8")
