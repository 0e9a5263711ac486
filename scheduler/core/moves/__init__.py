"""A task's life: the table of its moves, and what each move does."""

from __future__ import annotations
