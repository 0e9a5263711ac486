"""The HTTP process: health, readiness and metrics of a scheduler."""

from __future__ import annotations
