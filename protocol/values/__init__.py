"""Python objects as bytes: pickling, functions by content, exceptions, sizes."""

from __future__ import annotations
