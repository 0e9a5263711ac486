"""All settings of weft: one typed table, and the sources from which their values come."""

from __future__ import annotations
