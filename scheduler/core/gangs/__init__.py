"""Tasks that run at the same time or not at all: who they are, their places, and their ends."""

from __future__ import annotations
