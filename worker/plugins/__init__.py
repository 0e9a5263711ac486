"""Plugins in this process: set up, called, torn down."""

from __future__ import annotations
