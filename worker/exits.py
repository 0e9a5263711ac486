"""Exit codes with a meaning, and the note that a refused worker leaves for its supervisor.

The codes are those of sysexits.h, far from those that user code ends a process with.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

#: No scheduler was found or answered in time (EX_UNAVAILABLE); of `weft worker` only.
EXIT_NO_SCHEDULER: Final = 69
#: The scheduler would refuse the same process again (EX_NOPERM).
EXIT_REFUSED: Final = 77
#: The worker's configuration is at fault (EX_CONFIG); `weft worker` ends with 2 then.
EXIT_CONFIG: Final = 78


def note_refusal(record: Path | None, reason: str) -> None:
    """Leave the reason beside the record of started attempts, where the supervisor looks."""
    if record is not None:
        record.with_suffix(".refused").write_text(reason, encoding="utf-8")


def read_refusal(record: Path) -> str:
    """Return the reason that a refused worker left, "" if it left none; remove the note."""
    note = record.with_suffix(".refused")
    try:
        reason = note.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    note.unlink()
    return reason
