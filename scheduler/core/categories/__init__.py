"""Categories: tasks of one kind, which get as much memory as those before them have used."""

from __future__ import annotations
