"""The overview of a cluster as plain data: words, rates and columns, for pages and terminals."""

from __future__ import annotations
