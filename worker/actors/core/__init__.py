"""What is decided about calls of actors, without making any. Pure."""

from __future__ import annotations
