"""What is decided about values, without touching any. Pure."""

from __future__ import annotations
