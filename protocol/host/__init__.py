"""This machine and this interpreter: cores, memory, the garbage collector."""

from __future__ import annotations
