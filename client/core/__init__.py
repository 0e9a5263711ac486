"""The client's decisions: what is submitted, wanted, fetched. No I/O, clock or threads."""

from __future__ import annotations
