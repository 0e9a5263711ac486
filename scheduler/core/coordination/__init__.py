"""Held objects: locks, semaphores, events, queues and variables that clients share by name."""

from __future__ import annotations

from .operating import (
    HANDLERS,
    HeldObjects,
    on_client_away,
    on_client_back,
    on_client_expired,
    on_recovery_ended,
)

__all__ = [
    "HANDLERS",
    "HeldObjects",
    "on_client_away",
    "on_client_back",
    "on_client_expired",
    "on_recovery_ended",
]
