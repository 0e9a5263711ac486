"""Worker daemons, their pages and their places for data."""

from __future__ import annotations
