"""Blocked workers: users name hosts and workers that are given no tasks."""

from __future__ import annotations
