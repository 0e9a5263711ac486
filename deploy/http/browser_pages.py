"""The pages for browsers: the status page, all workers, signing in and out.

The content policy permits this server's own style sheet, script and icon, and forms to itself:
nothing inline, nothing from elsewhere. A form is only taken from a page of this server (`Origin`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlencode, urlsplit

import tornado.web

from ...protocol.errors import CommError, ProtocolError, QuestionFailed
from ...protocol.flame_graph import SCRIPT as FLAME_GRAPH
from ...protocol.page_style import SHEET
from ...protocol.timelines import SCRIPT as TIME_AXIS
from ...protocol.trust.page_access import PARAMETER
from ...protocol.trust.page_claims import PARAMETER as CLAIM
from ...protocol.wire.levels import Level
from . import status_page as html
from .base import Page, problem_with
from .detail_parts import STYLE as DETAIL_STYLE
from .documents import login_page, missing_page, onward_page, problem_page
from .graph_page import STYLE as GRAPH_STYLE
from .profile_page import SCRIPT as PROFILE_SCRIPT
from .profile_page import STYLE as PROFILE_STYLE
from .stream_page import STYLE as STREAM_STYLE
from .stream_page import stream_page
from .stream_script import SCRIPT as STREAM_SCRIPT
from .style import ICON, SCRIPT
from .visiting import visitor_of
from .visitor import Visitor

#: The status page is fetched again so often, and that of all workers, at least.
REFRESH_S: Final = 2.0
_POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
#: A token has less characters.
_MAX_TOKEN_CHARS: Final = 200


class BrowserPage(Page):
    """A page that is HTML."""

    def html(self, text: str, status: int = 200) -> None:
        """Answer with a page."""
        self.set_status(status)
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.set_header("Content-Security-Policy", _POLICY)
        self.finish(text)

    @property
    def wants_html(self) -> bool:
        """Whether a browser asks; programs get JSON."""
        return "text/html" in self.request.headers.get("Accept", "")

    @property
    def comes_from_elsewhere(self) -> bool:
        """Whether a link of another site led here: the browser has kept its cookie back then."""
        return self.request.headers.get("Sec-Fetch-Site") == "cross-site"

    def is_let_in(self) -> bool:
        """Return whether the browser is signed in; else show it the way, and return False."""
        if self.is_signed_in():
            return True
        if self.comes_from_elsewhere:
            self.html(onward_page("./" + self.request.path.strip("/")))
        else:
            self.set_header("Location", "login")
            self.text("sign in at login", 303)
        return False

    def is_own_form(self) -> bool:
        """Return whether a form comes from a page of this server; else refuse it."""
        origin = self.request.headers.get("Origin")
        if origin is None:  # no browser
            return True
        place = urlsplit(origin)
        is_own = place.netloc.lower() == self.request.host.lower()
        if is_own or (place.hostname or "") in self.site.names.given:
            return True
        self.text(
            "403 Forbidden: the form was not sent from a page of this server; if a proxy is before "
            "it, start the scheduler with --dashboard-host-name NAME",
            403,
        )
        return False


class StatusPage(BrowserPage):
    """The whole cluster; programs that ask for JSON get its description."""

    async def answer(self) -> None:
        access = self.get_query_argument(PARAMETER, None)
        if access is not None:
            await self.enter_by_link(access, self.get_query_argument(CLAIM, ""))
        elif not self.wants_html:
            await self.answer_json()
        elif self.is_let_in():
            await self.answer_html()

    async def enter_by_link(self, access: str, claim: str) -> None:
        """Sign a browser in that has followed a link, and take the link out of its address."""
        site = self.site
        is_in = site.gate.is_open_for(self)
        if not is_in and self.comes_from_elsewhere:
            link = {PARAMETER: access, **({CLAIM: claim} if claim else {})}
            self.html(onward_page(f"./?{urlencode(link)}"))
            return
        # A browser that is signed in uses it up as well: no other is to use it later.
        problem = site.gate.take_link(access)
        if not problem and claim:
            problem = await self.begin_visit(access, claim)
        if problem and not is_in:
            site.gate.note_failure(self)
            again = "Click on a new client.dashboard_link or cluster.dashboard_link, or sign in."
            self.html(login_page(self.request.host, f"{problem} {again}"), 403)
            return
        if not is_in:
            site.gate.let_in(self)
        self.html(onward_page("./"))

    async def begin_visit(self, access: str, claim: str) -> str:
        """Have the scheduler check what a link claims; return why it is not accepted, "" = it is.

        Without an answer the browser is let in to look.
        """
        gate = self.site.gate
        arguments = {
            "made": gate.made_of(access),
            "claim": claim,
            "address": self.request.remote_ip or "",
        }
        try:
            present = await visitor_of(self)
            found = await self.site.viewer.ask_all("enter", arguments)
        except QuestionFailed as error:
            return error.text
        except (TimeoutError, CommError, ProtocolError):
            return ""
        if Level[str(found["level"]).upper()] >= present.level:  # a link takes no right away
            gate.begin_visit(self, str(found["pass"]), float(found["left_s"]))
        return ""

    async def answer_json(self) -> None:
        """Describe the cluster for a program."""
        self.demand_token()
        await self.json_of(self.site.describe())

    async def answer_html(self) -> None:
        """Show the page, or why it cannot be shown."""
        try:
            page = await self.page()
        except TimeoutError:
            self.html(problem_page(_SILENT, REFRESH_S), 503)
        except (CommError, ProtocolError) as error:
            self.html(problem_page(f"{_GONE} ({error})", REFRESH_S), 503)
        else:
            self.html(page, self.get_status())

    async def page(self) -> str:
        """Return the status page."""
        watch = self.site.watch
        overview = await watch.overview.get()
        workers, clients = await watch.workers.get(), await watch.clients.get()
        visitor = await visitor_of(self)
        await self.site.history.read()
        return html.status_page(self.content(overview, workers, clients, visitor))

    def content(
        self,
        overview: html.Info,
        workers: Mapping[str, html.Info],
        clients: Sequence[html.Info],
        visitor: Visitor,
    ) -> html.PageContent:
        """Return what the pages show."""
        watch = self.site.watch
        facts = {"version": self.site.facts["version"]} if not overview["version"] else {}
        return html.PageContent(
            overview={**overview, **facts},
            workers=workers,
            clients=clients,
            rates=watch.rates.of_functions,
            total_rate=watch.rates.total,
            as_of=watch.as_of,
            refresh_s=REFRESH_S,
            visitor=visitor,
            history=self.site.history.history,
        )


_SILENT: Final = "The scheduler did not answer within 2 s: it is busy or held up."
_GONE: Final = "There is no connection to the scheduler."


class WorkersPage(StatusPage):
    """All workers, in an order that the browser asks for."""

    async def answer(self) -> None:
        if self.is_let_in():
            await self.answer_html()

    async def page(self) -> str:
        """Return the page of the workers."""
        order = self.get_query_argument("sort", "name")
        if order not in html.ORDERS:
            order = "name"
        watch = self.site.watch
        overview, workers = await watch.overview.get(), await watch.workers.get()
        visitor = await visitor_of(self)
        return html.workers_page(self.content(overview, workers, [], visitor), order)


class StreamPage(StatusPage):
    """The live task stream, which its script reads."""

    async def answer(self) -> None:
        if self.is_let_in():
            await self.answer_html()

    async def page(self) -> str:
        """Return the page."""
        overview = await self.site.watch.overview.get()
        return stream_page(str(overview["name"]) or "weft", (await visitor_of(self)).name)


class StreamData(Page):
    """The attempts since the last question of a browser, in columns of `protocol`."""

    async def answer(self) -> None:
        self.demand_token()
        found = await self.ask(self.site.stream.answer(self.get_query_argument("after", "")))
        if found is not None:
            self.set_header("Content-Type", "application/octet-stream")
            self.finish(found)


class LoginPage(BrowserPage):
    """Takes the view token and gives a cookie for it."""

    async def answer(self) -> None:
        if self.is_signed_in():
            self.html(onward_page("./"))
        else:
            self.html(login_page(self.request.host))

    async def post(self) -> None:  # type: ignore[mutable-override]
        """Sign in."""
        if not self.is_own_form():
            return
        gate = self.site.gate
        given = self.get_body_argument("token", "").strip()
        problem = problem_with(given[:_MAX_TOKEN_CHARS].encode(), self.site.token)
        if problem:
            await gate.failed.delay(self.request.remote_ip or "?")
            self.html(login_page(self.request.host, _sentence(given, problem)), 403)
            return
        gate.let_in(self)
        self.html(onward_page("./"))


def _sentence(given: str, problem: str) -> str:
    if not given:
        text = "No token was given"
    elif "role" in problem:
        text = problem[0].upper() + problem[1:]
    else:
        text = "This is not the view token of this cluster"
    return (
        f"{text}: use what 'weft token --role view --bare' prints; if several schedulers "
        "run there, give the address or --connection-file of this one as well."
    )


class LogoutPage(BrowserPage):
    """Takes the cookie away."""

    async def answer(self) -> None:
        self.set_header("Location", "./")
        self.text("sign out by the button of the page", 303)

    async def post(self) -> None:  # type: ignore[mutable-override]
        """Sign out."""
        if not self.is_own_form():
            return
        visit = self.site.gate.visit_of(self)
        if visit:  # so that a copy of the cookie is of no use
            with contextlib.suppress(TimeoutError, CommError, ProtocolError):
                await self.site.viewer.ask_all("leave", {"pass": visit})
        self.site.gate.let_out(self)
        self.set_header("Location", "login")
        self.text("signed out", 303)


class MissingPage(BrowserPage):
    """Any other path, with any method."""

    def prepare(self) -> None:
        super().prepare()
        if self.wants_html and not self._finished:
            self.html(missing_page(self.request.path), 404)
        else:
            raise tornado.web.HTTPError(404)


class Asset(Page):
    """A file of the pages, the same for everyone."""

    def initialize(self, site: object, text: str = "", content_type: str = "") -> None:
        super().initialize(site)  # type: ignore[arg-type]
        self._text, self._content_type = text, content_type

    async def answer(self) -> None:
        self.set_header("Content-Type", self._content_type)
        # With the tag that tornado computes, browsers ask again and get a 304.
        self.set_header("Cache-Control", "no-cache")
        self.finish(self._text)


#: {path: arguments of `Asset`}
ASSETS: Final = {
    "/style.css": {"text": SHEET, "content_type": "text/css; charset=utf-8"},
    "/refresh.js": {"text": SCRIPT, "content_type": "text/javascript; charset=utf-8"},
    "/timeline.css": {"text": STREAM_STYLE, "content_type": "text/css; charset=utf-8"},
    "/timeline.js": {"text": TIME_AXIS, "content_type": "text/javascript; charset=utf-8"},
    "/stream.js": {"text": STREAM_SCRIPT, "content_type": "text/javascript; charset=utf-8"},
    "/details.css": {"text": DETAIL_STYLE, "content_type": "text/css; charset=utf-8"},
    "/profile.css": {"text": PROFILE_STYLE, "content_type": "text/css; charset=utf-8"},
    "/flame.js": {"text": FLAME_GRAPH, "content_type": "text/javascript; charset=utf-8"},
    "/profile.js": {"text": PROFILE_SCRIPT, "content_type": "text/javascript; charset=utf-8"},
    "/graph.css": {"text": GRAPH_STYLE, "content_type": "text/css; charset=utf-8"},
    "/icon.svg": {"text": ICON, "content_type": "image/svg+xml"},
}
