"""The pages by path, their headers, and which of them need the token.

Closed by default: only `/healthz` and `/readyz`, which reveal nothing else, are answered without
the view token, which is sent as `Authorization: Bearer`. This process holds no other. A token that
can do more is refused although the view token could be derived from it, so that none ends up in the
configuration of a monitoring system, nor travels over plain HTTP twice: the answer names the token
to use. A Host header with a name that this server does
not have is refused: otherwise a browser would give access to a foreign page whose name was made to
resolve to this machine (DNS rebinding).

`/healthz` answers whether the scheduler answers, on the connection that this process keeps;
`/readyz`, whether it accepts a new connection, which it may not while too many are open, and
assigns tasks, which a new scheduler does not while it waits for the peers of the last one. Neither
asks for workers: they could not join by way of a service that waits for them.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import logging
import os
import platform
import socket
from collections.abc import Awaitable, Iterable
from typing import Any, Final

import tornado.web

from ...protocol.errors import CommError, ConnectTimeout, ProtocolError, WeftError
from ...protocol.trust.security import Security
from ...protocol.wire.levels import Level, level_of, lowered
from .prometheus import render
from .viewer import AcceptanceCheck, Viewer, describe_cluster

_log = logging.getLogger("weft.http")

_FOREIGN_NAME: Final = (
    "421 Misdirected Request: the name in the address is not one of this server: use localhost or "
    "the server's address, or start the scheduler with --dashboard-host-name NAME (or the variable "
    "WEFT_DASHBOARD_HOST_NAMES)"
)
_LOCAL_NAMES: Final = ("localhost",)
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class _Page(tornado.web.RequestHandler):
    """One path. Only GET and HEAD exist; tornado answers anything else with 405."""

    def initialize(self, site: Site) -> None:
        self.site = site

    def set_default_headers(self) -> None:
        self.clear_header("Server")
        for name, value in _HEADERS.items():
            self.set_header(name, value)

    def prepare(self) -> None:
        if not self.site.knows_host(self.request.host_name):
            self.text(_FOREIGN_NAME, 421)

    def demand_token(self) -> None:
        """Answer 401 unless the request proves that it holds the view token."""
        scheme, _, token = self.request.headers.get("Authorization", "").partition(" ")
        given = token.strip().encode()
        if scheme.lower() == "bearer" and given:
            if hmac.compare_digest(given, self.site.token):
                return
            level = level_of(given)
            if hmac.compare_digest(lowered(given, Level.VIEW), self.site.token):
                reason = f"pages take the view token only, this one is of role {level.label}"
                raise tornado.web.HTTPError(401, reason=reason)
        raise tornado.web.HTTPError(401, reason="the cluster's view token is needed")

    async def ask(self, question: Awaitable[dict[str, Any]]) -> dict[str, Any] | None:
        """Return the scheduler's answer; without one, answer 503 and return None."""
        try:
            return await question
        except TimeoutError:
            self.text("scheduler-silent", 503)
        except (CommError, ProtocolError):
            self.text("scheduler-gone", 503)
        return None

    def text(self, text: str, status: int = 200) -> None:
        """Answer with one line."""
        self.set_status(status)
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(text + "\n")

    def write_error(self, status_code: int, **options: Any) -> None:
        error = options.get("exc_info", (None, None, None))[1]
        reason = self._reason
        if status_code == 401:
            self.set_header("WWW-Authenticate", 'Bearer realm="weft"')
            reason += (
                ": send 'Authorization: Bearer TOKEN' with what 'weft token --role view --bare' "
                "prints"
            )
        elif status_code >= 500 and error is not None:
            reason = "internal error"
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(f"{status_code} {reason}\n")

    async def get(self) -> None:  # type: ignore[mutable-override]
        await self.answer()

    #: As GET; tornado leaves the body out.
    head = get  # type: ignore[mutable-override]

    async def answer(self) -> None:
        raise tornado.web.HTTPError(404)


class _Healthz(_Page):
    async def answer(self) -> None:
        if await self.ask(self.site.viewer.metrics()) is not None:
            self.text("ok")


class _Readyz(_Page):
    async def answer(self) -> None:
        try:
            await self.site.acceptance.run()
        except (ConnectTimeout, TimeoutError):
            self.text("scheduler-silent", 503)
        except WeftError:
            self.text("scheduler-refuses", 503)
        else:
            values = await self.ask(self.site.viewer.metrics())
            if values is not None and values.get("recovering"):
                self.text("recovering", 503)
            elif values is not None:
                self.text("ready")


class _MetricsPage(_Page):
    async def answer(self) -> None:
        self.demand_token()
        values = await self.ask(self.site.viewer.metrics())
        if values is not None:
            accept = self.request.headers.get("Accept", "")
            page, content_type = render(values, self.site.facts, accept, self.site.scheduler_pid)
            self.set_header("Content-Type", content_type)
            self.finish(page)


class _Index(_Page):
    async def answer(self) -> None:
        self.demand_token()
        info = await self.ask(describe_cluster(self.site.viewer))
        if info is not None:
            self.set_header("Content-Type", "application/json")
            self.finish(json.dumps({"pages": list(_PAGES), "cluster": info}, indent=2) + "\n")


class _Nothing(_Page):
    def prepare(self) -> None:
        super().prepare()
        raise tornado.web.HTTPError(404)


_PAGES: Final[dict[str, type[_Page]]] = {
    "/": _Index,
    "/healthz": _Healthz,
    "/metrics": _MetricsPage,
    "/readyz": _Readyz,
}


class Site:
    """The pages and what they need."""

    def __init__(
        self,
        viewer: Viewer,
        acceptance: AcceptanceCheck,
        security: Security,
        names: Iterable[str],
    ) -> None:
        from importlib.metadata import PackageNotFoundError, version

        self.viewer = viewer
        #: It has started this process.
        self.scheduler_pid = os.getppid()
        self.acceptance = acceptance
        self.token = security.token
        #: The names of this server; an address is always accepted, a rebinding attack needs a name.
        self._names = {*_LOCAL_NAMES, socket.gethostname().lower(), *(n.lower() for n in names)}
        try:
            weft_version = version("weft")
        except PackageNotFoundError:  # from a checkout that was never installed
            weft_version = "unknown"
        self.facts = {"version": weft_version, "python": platform.python_version()}

    def knows_host(self, host: str) -> bool:
        """Return whether a request's Host, without its port, means this server."""
        bare = host.strip("[]").rstrip(".").lower()
        if bare in self._names:
            return True
        try:
            ipaddress.ip_address(bare)
        except ValueError:
            return False
        return True

    def application(self) -> tornado.web.Application:
        """Return the pages by path."""
        return tornado.web.Application(
            [(path, page, {"site": self}) for path, page in _PAGES.items()],
            default_handler_class=_Nothing,
            default_handler_args={"site": self},
            log_function=_log_request,
        )


def _log_request(handler: tornado.web.RequestHandler) -> None:
    # Tornado's own function warns of every 4xx: a scan of the ports would fill the log.
    request = handler.request
    _log.debug("%s %s %s %d", request.remote_ip, request.method, request.path, handler.get_status())
