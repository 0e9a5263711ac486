"""What a scheduler that was started again learns from its peers."""

from __future__ import annotations
