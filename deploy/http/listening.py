"""The HTTP server of a process: its sockets, its limits, its end; the same for all pages."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Coroutine
from typing import Any, Final

import tornado.httpserver
import tornado.netutil
import tornado.web

from ...protocol.errors import ConfigError

#: A connection without a whole request for this long is closed.
IDLE_TIMEOUT_S: Final = 10.0
_MAX_BYTES: Final = 16 << 10


def bind(host: str, port: int, served: str, hint: str) -> list[socket.socket]:
    """Return sockets that listen at an address.

    Args:
        host: to listen at.
        port: 0 = any free one.
        served: for errors, what is served there.
        hint: for errors, what to do.

    Raises:
        ConfigError: the address cannot be listened at.
    """
    try:
        return tornado.netutil.bind_sockets(port, host)
    except OSError as error:
        raise ConfigError(
            f"cannot serve {served} at {host}:{port}: {error.strerror or error}; {hint}"
        ) from None


def start(
    application: tornado.web.Application,
    sockets: list[socket.socket],
    context: ssl.SSLContext | None,
    idle_timeout_s: float = IDLE_TIMEOUT_S,
) -> tornado.httpserver.HTTPServer:
    """Start to answer at sockets; see `stop`."""
    server = tornado.httpserver.HTTPServer(
        application,
        ssl_options=context,
        # Also the limit for the headers of a request, and for the TLS handshake before them.
        idle_connection_timeout=idle_timeout_s,
        body_timeout=5.0,
        max_header_size=_MAX_BYTES,
        max_body_size=_MAX_BYTES,
        decompress_request=False,
    )
    server.add_sockets(sockets)
    return server


async def stop(server: tornado.httpserver.HTTPServer) -> None:
    """Close the sockets and all connections."""
    server.stop()
    await server.close_all_connections()


def run(serving: Coroutine[Any, Any, None]) -> None:
    """Be a process that serves pages."""
    # A refused request concerns the peer that made it, not this process's log.
    logging.getLogger("tornado.access").setLevel(logging.ERROR)
    logging.getLogger("tornado.general").setLevel(logging.ERROR)
    asyncio.run(serving)
