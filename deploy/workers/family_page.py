"""Starts the process that serves the metrics page of a family of workers, and keeps it running."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Any, Final

from ...protocol.errors import WeftError
from ...protocol.net.sockets import outward_host
from ...protocol.trust.security import Security, needs_tls
from ...protocol.wire.levels import Level
from ..processes.child import Child

_log = logging.getLogger("weft.supervisor")

#: Time before a page that has ended is served again.
_RESTART_S: Final = 1.0
#: Time in which it must have started.
_START_S: Final = 30.0
_ANY: Final = ("", "0.0.0.0", "::")


@dataclass(slots=True)
class FamilyPage:
    """The page of one family.

    Attributes:
        host: to listen at.
        port: 0 = any free one, and the same after a failure.
        directory: of the family.
        security: the cluster's, with any token that can read.
    """

    host: str
    port: int
    directory: str
    security: Security
    _child: Child | None = None

    def start(self) -> str:
        """Start the process; return the URL at which others find the page.

        Raises:
            WeftError: it does not start.
        """
        child = Child("family-page", session=False)
        child.configure(self._plain())
        try:
            self.port = child.wait_ready(_START_S)["port"]
        except BaseException:
            child.kill()
            child.close()
            raise
        self._child = child
        return self._url()

    def _plain(self) -> dict[str, Any]:
        security = self.security.lowered(Level.VIEW)
        return {
            "host": self.host,
            "port": self.port,
            "directory": self.directory,
            "security": security.to_plain(with_private_key=True),
        }

    def _url(self) -> str:
        host = outward_host(self.host or "0.0.0.0") if self.host in _ANY else self.host
        scheme = "https" if needs_tls(self.host) else "http"
        shown = f"[{host}]" if ":" in host else host
        return f"{scheme}://{shown}:{self.port}/metrics"

    async def keep(self) -> None:
        """Start the process again whenever it ends. Cancel it to end this."""
        while True:
            if self._child is not None:
                how = await self._child.wait_ended_async()
                self._child.close()
                self._child = None
                _log.error("the process of the metrics page ended (%s) and is started again", how)
            await asyncio.sleep(_RESTART_S)
            child = Child("family-page", session=False)
            child.configure(self._plain())
            try:
                await child.wait_ready_async()
            except WeftError as error:
                child.close()
                _log.error("the metrics page does not start: %s", error)
            except BaseException:
                child.kill()
                child.close()
                raise
            else:
                self._child = child

    def close(self) -> None:
        """End the process."""
        if self._child is not None:
            self._child.close()
            self._child = None
