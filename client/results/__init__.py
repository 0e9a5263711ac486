"""Results: gathered, refused, failed, late."""

from __future__ import annotations
