"""What tasks print and log."""

from __future__ import annotations
