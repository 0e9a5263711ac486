"""What clients ask for: submit, want, withdraw, retry."""

from __future__ import annotations
