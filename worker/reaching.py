"""Tries the way to the data ports of other workers, for `weft doctor`: nothing is asked there.

Each attempt is made as for a fetch, with the handshake, so that a proxy, another process at that
port and a token of another cluster are found as well as a firewall.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Final

from ..protocol.errors import CommError, ConnectRefused, ConnectTimeout, ProtocolError, WeftError
from ..protocol.net.connection import Connection
from ..protocol.net.data_connection import connect_to_data_port
from ..protocol.trust.security import Security
from ..protocol.wire.address import parse_address
from ..protocol.wire.message import Message

#: Addresses in one question.
MAX_ADDRESSES: Final = 64
#: For all of them, which are tried at the same time.
TIMEOUT_S: Final = 3.0
_MAX_CHARS: Final = 300


class _Silent:
    """Takes no part in the connection, which is closed as soon as it is open."""

    def on_messages(self, connection: Connection, messages: list[Message]) -> None:
        """See `Handler`."""

    def on_writable(self, connection: Connection) -> None:
        """See `Handler`."""

    def on_closed(self, connection: Connection, error: CommError | ProtocolError | None) -> None:
        """See `Handler`."""


async def unreached(addresses: list[str], security: Security) -> dict[str, list[str]]:
    """Connect to data ports; return `{address: [kind, text]}` of those that are out of reach.

    The kinds are "refused", "no-answer", "name" (it does not resolve) and "other".
    """
    found = await asyncio.gather(*[_try(address, security) for address in addresses])
    return {address: why for address, why in zip(addresses, found, strict=True) if why}


async def _try(address: str, security: Security) -> list[str]:
    try:
        target = parse_address(address)
        if target.is_tcp:
            await asyncio.get_running_loop().getaddrinfo(
                target.host, target.port, type=socket.SOCK_STREAM
            )
        connection = await connect_to_data_port(address, security, _Silent(), TIMEOUT_S)
    except (socket.gaierror, UnicodeError):
        return ["name", "the name does not resolve there"]
    except ConnectRefused as error:
        return ["refused", error.text[:_MAX_CHARS]]
    except ConnectTimeout as error:
        return ["no-answer", f"{error.text} within {TIMEOUT_S:g} s"[:_MAX_CHARS]]
    except WeftError as error:
        return ["other", str(error)[:_MAX_CHARS]]
    connection.abort()
    return []
