"""Checks whether a process listens at an address, for error texts only.

A shell that blocks for a moment. It sends nothing, so it needs no token.
"""

from __future__ import annotations

import socket
from typing import Final

from ..errors import ConfigError
from ..wire.address import parse_address

#: After this time without an answer the address counts as used: a firewall may drop packets.
_TIMEOUT_S: Final = 1.0


def why_nobody_answers(address: str) -> str:
    """Return why `address` is of no use (no listener, or an unknown name); "" = no problem."""
    try:
        parsed = parse_address(address if "://" in address else f"tcp://{address}")
    except ConfigError:
        return ""
    if parsed.scheme == "unix":
        return _why_not_unix(parsed.host)
    if not parsed.is_tcp:
        return ""
    try:
        socket.create_connection((parsed.host, parsed.port or 0), timeout=_TIMEOUT_S).close()
    except socket.gaierror:
        return f"the name {parsed.host} does not resolve"
    except ConnectionRefusedError:
        return f"no process listens at {address}"
    except OSError:
        return ""
    return ""


def _why_not_unix(path: str) -> str:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(_TIMEOUT_S)
        try:
            sock.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            return f"no process listens at unix://{path}"
        except OSError:
            return ""
    return ""
