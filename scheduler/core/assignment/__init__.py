"""Which worker runs what next."""

from __future__ import annotations
