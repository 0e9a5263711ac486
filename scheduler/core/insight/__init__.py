"""Answers about the state; nothing here changes it."""

from __future__ import annotations
