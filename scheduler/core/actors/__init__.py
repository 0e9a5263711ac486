"""Actors, as far as the scheduler knows them."""

from __future__ import annotations
