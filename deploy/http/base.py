"""The parts that all pages share: headers, names of this server, tokens, and errors in one line.

Closed by default: only `/healthz` and `/readyz`, which reveal nothing else, are answered without
the view token, as `Authorization: Bearer`, or the cookie that it has signed. This process holds no
other token. A token that can do more is refused although the view token could be derived from it,
so that none ends up in the configuration of a monitoring system, nor travels over plain HTTP twice:
the answer names the token to use. A Host header with a name that this server does not have is
refused: otherwise a browser would give access to a foreign page whose name was made to resolve to
this machine (DNS rebinding).
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import socket
from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import tornado.web

from ...protocol.errors import CommError, ProtocolError
from ...protocol.wire.levels import Level, level_of, lowered

if TYPE_CHECKING:
    from .pages import Site

T = TypeVar("T")

_FOREIGN_NAME: Final = (
    "421 Misdirected Request: the name in the address is not one of this server: use localhost or "
    "the server's address, or start the scheduler with --dashboard-host-name NAME (or the variable "
    "WEFT_SCHEDULER_DASHBOARD_HOST_NAMES)"
)
_LOCAL_NAMES: Final = ("localhost",)
_HEADERS: Final = {
    "Cache-Control": "no-store",
    # `same-origin` and not `no-referrer`, with which the browser would hide the origin of forms.
    "Referrer-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}


class ServerNames:
    """The names under which the pages are answered.

    Args:
        host: where the pages are served.
        given: further names, of services and proxies before this one.
    """

    def __init__(self, host: str, given: Iterable[str]) -> None:
        self.given = {name.lower() for name in given}
        own = host.lower(), socket.gethostname().lower()
        self._names = {*_LOCAL_NAMES, *own, *self.given}

    def __contains__(self, host: str) -> bool:
        """Return whether a request's Host, without its port, means this server.

        An address always does: a rebinding attack needs a name.
        """
        bare = host.strip("[]").rstrip(".").lower()
        if bare in self._names:
            return True
        try:
            ipaddress.ip_address(bare)
        except ValueError:
            return False
        return True


def problem_with(given: bytes, token: bytes) -> str:
    """Return why a token is not the view token `token`; "" = it is."""
    if hmac.compare_digest(given, token):
        return ""
    level = level_of(given)
    if hmac.compare_digest(lowered(given, Level.VIEW), token):
        return f"pages take the view token only, this one is of role {level.label}"
    return "the cluster's view token is needed"


class Page(tornado.web.RequestHandler):
    """One path. By default only GET and HEAD exist; tornado answers anything else with 405."""

    def initialize(self, site: Site) -> None:
        self.site = site

    def set_default_headers(self) -> None:
        self.clear_header("Server")
        for name, value in _HEADERS.items():
            self.set_header(name, value)

    def prepare(self) -> None:
        if self.request.host_name not in self.site.names:
            self.text(_FOREIGN_NAME, 421)

    def demand_token(self) -> None:
        """Answer 401 unless the request proves that it holds the view token, or a cookie of it."""
        if not self.is_signed_in():
            scheme, _, token = self.request.headers.get("Authorization", "").partition(" ")
            is_bearer = scheme.lower() == "bearer"
            problem = problem_with(token.strip().encode() if is_bearer else b"", self.site.token)
            raise tornado.web.HTTPError(401, reason=problem)

    def is_signed_in(self) -> bool:
        """Return whether the request has the view token, or a cookie that it has signed."""
        scheme, _, token = self.request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            is_right = not problem_with(token.strip().encode(), self.site.token)
            if not is_right:
                self.site.gate.note_failure(self)
            return is_right
        return self.site.gate.is_open_for(self)

    async def ask(self, question: Awaitable[T]) -> T | None:
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

    def json(self, content: Any) -> None:
        """Answer with JSON."""
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps(content, indent=2) + "\n")

    async def json_of(self, question: Awaitable[Any]) -> None:
        """Answer with the scheduler's answer, as JSON."""
        info = await self.ask(question)
        if info is not None:
            self.json(info)

    def write_error(self, status_code: int, **options: Any) -> None:
        error = options.get("exc_info", (None, None, None))[1]
        reason = self._reason
        if status_code == 401:
            self.set_header("WWW-Authenticate", 'Bearer realm="weft"')
            reason += (
                ": send 'Authorization: Bearer TOKEN' with what 'weft token --role view --bare' "
                "prints; if several schedulers run there, give the address or --connection-file of "
                "this one as well"
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
