"""Numbers about this process and its children."""

from __future__ import annotations
