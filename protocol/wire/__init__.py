"""The bytes on the wire: messages, frames, handshakes, failures. No I/O."""

from __future__ import annotations
