"""Starts the process that serves the metrics page of a family of workers, and keeps it running."""

from __future__ import annotations

import logging
from typing import Final

from ...protocol.net.sockets import outward_host
from ...protocol.trust.security import Security, needs_tls
from ...protocol.wire.levels import Level
from ..processes.child import KeptServer

_log = logging.getLogger("weft.supervisor")

#: Time in which it must have started.
_START_S: Final = 30.0
_ANY: Final = ("", "0.0.0.0", "::")


class FamilyPage:
    """The page of one family.

    Args:
        host: to listen at.
        port: 0 = any free one, and the same after a failure.
        directory: of the family.
        security: the cluster's, with any token that can read.
    """

    def __init__(self, host: str, port: int, directory: str, security: Security) -> None:
        self._host = host
        plain = {
            "host": host,
            "directory": directory,
            "security": security.lowered(Level.VIEW).to_plain(with_private_key=True),
        }
        name = "process of the metrics page"
        self._server = KeptServer("family-page", name, _log, port, lambda: plain)
        self.keep, self.close = self._server.keep, self._server.close

    def start(self) -> str:
        """Start the process; return the URL at which others find the page.

        Raises:
            WeftError: it does not start.
        """
        self._server.start(_START_S)
        host = outward_host(self._host or "0.0.0.0") if self._host in _ANY else self._host
        scheme = "https" if needs_tls(self._host) else "http"
        shown = f"[{host}]" if ":" in host else host
        return f"{scheme}://{shown}:{self._server.port}/metrics"
