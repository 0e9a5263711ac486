"""Running attempts that are ended: cancelled ones, and those that take longer than they may."""

from __future__ import annotations
