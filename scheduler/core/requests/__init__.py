"""What clients ask for: submit, want, cancel, retry."""

from __future__ import annotations
