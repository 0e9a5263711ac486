"""What is sent, byte by byte: messages, frames, handshakes, failures. No I/O."""

from __future__ import annotations
