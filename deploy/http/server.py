"""The HTTP process: it listens, asks the scheduler as a viewer, and ends when that connection ends.

It is a process of its own, because tornado imports pickle, which the scheduler's process must not,
and because a page must never delay an assignment. Beyond loopback the pages are HTTPS, with the
cluster's certificate.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from ...protocol.trust.security import Security, needs_tls, server_ssl_context
from . import listening
from .browser_access import Gate, UsedLinks
from .pages import Site
from .viewer import Viewer


@dataclass
class HttpConfig:
    """The address to listen at, and the scheduler to ask.

    Attributes:
        host: to listen at.
        port: 0 = any free one.
        scheduler_address: the scheduler's address.
        host_names: of this server, beside those that this machine knows.
        security: the cluster's; with certificate and key if `host` needs TLS.
        idle_timeout_s: a connection without a whole request for this long is closed.
        began: when the scheduler began; None = now. Links of before are refused.
        used_links: that the HTTP processes before this one have accepted.
        on_link_used: called with each link that is accepted.
    """

    host: str
    port: int
    scheduler_address: str
    security: Security
    idle_timeout_s: float = listening.IDLE_TIMEOUT_S
    host_names: tuple[str, ...] = ()
    began: float | None = None
    used_links: UsedLinks = field(default_factory=UsedLinks)
    on_link_used: Callable[[str], None] = lambda access: None

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> HttpConfig:
        """Read the configuration that the scheduler's process sends at the start."""
        return cls(
            host=plain["host"],
            port=plain["port"],
            scheduler_address=plain["scheduler_address"],
            security=Security.from_plain(plain["security"]),
            host_names=tuple(plain["host_names"]),
            began=plain["began"],
            used_links=UsedLinks(plain["used_links"]),
        )


async def serve(
    config: HttpConfig,
    on_ready: Callable[..., None],
    wait_gone: Callable[[], Coroutine[Any, Any, None]],
) -> None:
    """Serve until `wait_gone` returns or the scheduler is gone.

    Raises:
        WeftError: the port is taken, or the scheduler cannot be reached.
    """
    context = server_ssl_context(config.security) if needs_tls(config.host) else None
    sockets = listening.bind(
        config.host,
        config.port,
        "pages",
        "choose another --dashboard-address, or use --no-dashboard",
    )
    viewer = Viewer()
    try:
        await viewer.open(config.scheduler_address, config.security)
        gate = Gate(
            config.security.token,
            began=config.began,
            used=config.used_links,
            on_used=config.on_link_used,
        )
        site = Site(
            viewer, gate, config.security, config.scheduler_address, config.host, config.host_names
        )
        server = listening.start(site.application(), sockets, context, config.idle_timeout_s)
    except BaseException:
        for sock in sockets:
            sock.close()
        viewer.close()
        raise
    on_ready(port=sockets[0].getsockname()[1])
    gone = asyncio.get_running_loop().create_task(wait_gone())
    left = asyncio.get_running_loop().create_task(viewer.wait_closed())
    await asyncio.wait([gone, left], return_when=asyncio.FIRST_COMPLETED)
    gone.cancel()
    left.cancel()
    await listening.stop(server)
    gate.failed.close()
    await site.close()
    viewer.close()
