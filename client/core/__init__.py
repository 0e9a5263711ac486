"""The client's decisions: what to submit, to want and to fetch. No I/O, clock or threads."""

from __future__ import annotations
