"""The client's shell, which turns the core's messages and actions into I/O."""

from __future__ import annotations
