"""The pages with pictures of calls and tasks: the statistical profile, the graph of a selection."""

from __future__ import annotations

from ...protocol.errors import NotPermitted
from .base import Page
from .browser_pages import StatusPage
from .graph_page import GraphContent, graph_page
from .graph_reading import read_neighbours
from .profile_page import profile_page, refused_page
from .profile_watch import SPANS_S
from .visiting import visitor_of

#: Characters of a key or a name in an address.
_MAX_CHARS = 1024


class ProfilePage(StatusPage):
    """The statistical profile, for visitors who may see the code of tasks."""

    async def answer(self) -> None:
        if self.is_let_in():
            await self.answer_html()

    async def page(self) -> str:
        """Return the page."""
        overview = await self.site.watch.overview.get()
        name = str(overview["name"]) or "weft"
        visitor = await visitor_of(self)
        if not visitor.may_read:
            self.set_status(403)
            return refused_page(name)
        return profile_page(name, visitor.name)


class ProfileData(Page):
    """What workers have sampled since somebody looks, as JSON."""

    async def answer(self) -> None:
        self.demand_token()
        worker = self.get_query_argument("worker", "")[:_MAX_CHARS]
        span = self.get_query_argument("span", "")
        span_s = int(span) if span in map(str, SPANS_S) else 0
        since = self.get_query_argument("since", "")[:_MAX_CHARS]
        found = await self.ask(self.read(worker, span_s, since))
        if found is None:
            return
        if not found:
            self.text("403 Forbidden: it takes a visit with the rights of a client", 403)
            return
        self.set_header("Content-Type", "application/json")
        self.finish(found)

    async def read(self, worker: str, span_s: int, since: str) -> bytes:
        """Return the answer; nothing for one who may only look."""
        visitor = await visitor_of(self)
        if not visitor.may_read:
            return b""
        try:
            return await self.site.profile.answer(visitor.visit, worker, span_s, since)
        except NotPermitted:  # the visit has just ended
            return b""


class GraphPage(StatusPage):
    """The tasks around one, and how they depend on each other."""

    async def answer(self) -> None:
        if self.is_let_in():
            await self.answer_html()

    async def page(self) -> str:
        """Return the page."""
        overview = await self.site.watch.overview.get()
        key = self.get_query_argument("key", "")[:_MAX_CHARS]
        found = await read_neighbours(self.site.viewer, key)
        if key and key not in found.tasks:
            self.set_status(404)
        name, visitor = str(overview["name"]) or "weft", await visitor_of(self)
        return graph_page(GraphContent(name, key, found, visitor.name))
