"""The `weft` command."""

from __future__ import annotations
