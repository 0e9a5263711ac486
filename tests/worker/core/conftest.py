"""A test of the worker's core knows all that an event has sent, if it looks at some of it."""

from __future__ import annotations

from tests.outbox import nothing_else_was_sent

__all__ = ["nothing_else_was_sent"]
