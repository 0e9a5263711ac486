"""Locks, semaphores, events, queues, variables and others: what clients share by name."""

from __future__ import annotations
