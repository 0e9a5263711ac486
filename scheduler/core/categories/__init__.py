"""Categories: tasks of one kind, which get as much memory and as many cores as others have used."""

from __future__ import annotations
