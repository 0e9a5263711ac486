"""The worker's decisions: what runs, what is fetched, what is reported. No I/O or clock."""

from __future__ import annotations
