"""What turns the client core's messages and actions into I/O: the loop, the engine, the links."""

from __future__ import annotations
