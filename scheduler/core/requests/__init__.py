"""Handles the requests of clients: submit, want, cancel, retry."""

from __future__ import annotations
