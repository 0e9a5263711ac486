"""A call becomes rows: functions and arguments are encoded, options are checked."""

from __future__ import annotations
