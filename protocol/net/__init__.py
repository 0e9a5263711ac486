"""Connections: addresses, listening, TCP, TLS, Unix sockets, in-process links, deadlines."""

from __future__ import annotations
