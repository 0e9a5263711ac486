"""Ask whether anybody listens at an address: for error texts, never for decisions about a cluster.

A shell that blocks for a moment; nothing is sent, so it needs no token.
"""

from __future__ import annotations

import socket
from typing import Final

from ..errors import ConfigError
from ..wire.address import parse_address

#: An answer that takes longer is taken for a yes: something drops what is sent there.
_TIMEOUT_S: Final = 1.0


def why_nobody_answers(address: str) -> str:
    """Say what is wrong with `address`: nobody listens, or its name is unknown; "" = nothing."""
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
        return f"nobody listens at {address}"
    except OSError:
        return ""
    return ""


def _why_not_unix(path: str) -> str:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(_TIMEOUT_S)
        try:
            sock.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            return f"nobody listens at unix://{path}"
        except OSError:
            return ""
    return ""
