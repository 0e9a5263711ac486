"""The HTTP process: health, readiness, metrics.

A process of its own, because tornado imports pickle, which the scheduler's process must not, and
because a page must never delay an assignment. It is the scheduler's child, connects to it as a
viewer, and ends when that connection does.

Closed by default: only `/healthz` and `/readyz`, which say nothing else, are answered without the
token. It has to be in `Authorization: Bearer`. A Host header that is a name we do not go by is
refused: a page of somebody else's that has its name resolved to us would otherwise be let in by the
browser (DNS rebinding). Beyond loopback the pages are HTTPS, with the cluster's certificate.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import logging
import platform
import socket
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

import tornado.httpserver
import tornado.netutil
import tornado.web

from ...protocol.connection import Connection
from ...protocol.deadline import within
from ...protocol.errors import CommError, ConfigError, ProtocolError
from ...protocol.handshake import Role
from ...protocol.message import Message
from ...protocol.messages import ClusterInfo, GetClusterInfo, GetMetrics, Metrics
from ...protocol.security import Security, needs_tls, server_ssl_context
from ...protocol.transport import connect
from .prometheus import render

_log = logging.getLogger("weft.http")

#: A scheduler that has not answered after this is not healthy.
_ANSWER_TIMEOUT_S: Final = 2.0
_LOCAL_NAMES: Final = ("localhost",)
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@dataclass
class HttpConfig:
    """Where to listen, and which scheduler to ask.

    Attributes:
        host: to listen at.
        port: 0 = any free one.
        scheduler_address: where the scheduler is.
        security: the cluster's; with certificate and key if `host` needs TLS.
    """

    host: str
    port: int
    scheduler_address: str
    security: Security

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> HttpConfig:
        """Read what the scheduler's process sends at the start."""
        return cls(
            host=plain["host"],
            port=plain["port"],
            scheduler_address=plain["scheduler_address"],
            security=Security(
                token=plain["token"].encode(),
                cluster_id=bytes.fromhex(plain["cluster_id"]),
                certificate_pem=plain["certificate_pem"],
                private_key_pem=plain["private_key_pem"],
            ),
        )


class Viewer:
    """The connection to the scheduler. One question of a kind is under way at a time."""

    def __init__(self) -> None:
        self.closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._connection: Connection | None = None
        self._n_requests = 0
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        #: {kind: its answer} of the questions under way: many probes at once ask once
        self._asked: dict[type[Message], asyncio.Future[dict[str, Any]]] = {}

    async def open(self, address: str, security: Security) -> None:
        """Connect.

        Raises:
            WeftError: the scheduler cannot be reached, or does not take us.
        """
        self._connection = await connect(
            address, role=Role.VIEWER, server_role=Role.SCHEDULER, security=security, handler=self
        )

    async def ask(self, kind: type[GetMetrics | GetClusterInfo]) -> dict[str, Any]:
        """Return the scheduler's answer.

        Raises:
            TimeoutError: there is none.
        """
        future = self._asked.get(kind)
        if future is None or future.done():
            self._n_requests += 1
            future = asyncio.get_running_loop().create_future()
            self._answers[self._n_requests] = future
            self._asked[kind] = future
            if self._connection is not None:
                self._connection.send([kind(request=self._n_requests)])
        try:
            return await within(_ANSWER_TIMEOUT_S, asyncio.shield(future))
        except TimeoutError:
            raise TimeoutError("the scheduler does not answer") from None

    def on_messages(self, connection: Connection, messages: list[Message]) -> None:
        """See `Handler`."""
        for message in messages:
            if isinstance(message, (Metrics, ClusterInfo)):
                future = self._answers.pop(message.request, None)
                if future is not None:
                    answer = message.values if isinstance(message, Metrics) else message.info
                    future.set_result(answer)

    def on_writable(self, connection: Connection) -> None:
        """See `Handler`; questions are small."""

    def on_closed(self, connection: Connection, error: CommError | ProtocolError | None) -> None:
        """See `Handler`."""
        self._connection = None
        if not self.closed.done():
            self.closed.set_result(str(error) if error else "closed")

    async def wait_closed(self) -> None:
        """Wait until the connection is gone."""
        await asyncio.shield(self.closed)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()


# --- Pages ----------------------------------------------------------------------------------------


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
            raise tornado.web.HTTPError(421, reason="not a name of this server")

    def demand_token(self) -> None:
        """Answer 401 unless the request proves that it holds the token."""
        scheme, _, token = self.request.headers.get("Authorization", "").partition(" ")
        given = token.strip().encode()
        if scheme.lower() != "bearer" or not hmac.compare_digest(given, self.site.token):
            raise tornado.web.HTTPError(401, reason="the cluster's token is needed")

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
            reason += ": send 'Authorization: Bearer TOKEN'; it is in the connection file"
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
        try:
            await self.site.viewer.ask(GetMetrics)
        except TimeoutError:
            self.text("scheduler-silent", 503)
        else:
            self.text("ok")


class _Readyz(_Page):
    async def answer(self) -> None:
        if self.site.viewer.closed.done():
            self.text("scheduler-gone", 503)
            return
        try:
            await self.site.viewer.ask(GetMetrics)
        except TimeoutError:
            self.text("scheduler-silent", 503)
        else:
            self.text("ready")


class _MetricsPage(_Page):
    async def answer(self) -> None:
        self.demand_token()
        try:
            values = await self.site.viewer.ask(GetMetrics)
        except TimeoutError:
            self.text("scheduler-silent", 503)
            return
        page, content_type = render(values, self.site.facts, self.request.headers.get("Accept", ""))
        self.set_header("Content-Type", content_type)
        self.finish(page)


class _Index(_Page):
    async def answer(self) -> None:
        self.demand_token()
        try:
            info = await self.site.viewer.ask(GetClusterInfo)
        except TimeoutError:
            self.text("scheduler-silent", 503)
            return
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

    def __init__(self, viewer: Viewer, security: Security, host: str) -> None:
        from importlib.metadata import PackageNotFoundError, version

        self.viewer = viewer
        self.token = security.token
        #: Names that we go by; addresses are always fine, a rebinding attack needs a name.
        self._names = {*_LOCAL_NAMES, host.lower(), socket.gethostname().lower()}
        try:
            weft_version = version("weft")
        except PackageNotFoundError:  # from a checkout that was never installed
            weft_version = "unknown"
        self.facts = {"version": weft_version, "python": platform.python_version()}

    def knows_host(self, host: str) -> bool:
        """Say whether a request's Host, without its port, means us."""
        bare = host.strip("[]").lower()
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
    # Tornado's own warns of every 4xx: whoever scans ports would fill the log.
    request = handler.request
    _log.debug("%s %s %s %d", request.remote_ip, request.method, request.path, handler.get_status())


# --- The process ----------------------------------------------------------------------------------


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
    try:
        sockets = tornado.netutil.bind_sockets(config.port, config.host)
    except OSError as error:
        raise ConfigError(
            f"cannot serve pages at {config.host}:{config.port}: {error.strerror or error}; "
            "choose another --dashboard-address, or use --no-dashboard"
        ) from None
    viewer = Viewer()
    try:
        await viewer.open(config.scheduler_address, config.security)
        site = Site(viewer, config.security, config.host)
        server = tornado.httpserver.HTTPServer(
            site.application(),
            ssl_options=context,
            idle_connection_timeout=60.0,
            body_timeout=5.0,
            max_header_size=16 << 10,
            max_body_size=16 << 10,
            decompress_request=False,
        )
        server.add_sockets(sockets)
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
    server.stop()
    await server.close_all_connections()
    viewer.close()


def run(
    config: HttpConfig,
    on_ready: Callable[..., None],
    wait_gone: Callable[[], Coroutine[Any, Any, None]],
) -> None:
    """Be the HTTP process; see `serve`."""
    # A refused request is for whoever made it, not for our log.
    logging.getLogger("tornado.access").setLevel(logging.ERROR)
    logging.getLogger("tornado.general").setLevel(logging.ERROR)
    asyncio.run(serve(config, on_ready, wait_gone))
