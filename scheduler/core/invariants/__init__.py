"""What is always true of the state; for tests and the simulator."""

from __future__ import annotations
