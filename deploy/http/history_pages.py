"""The page of the last hour, and what its script reads."""

from __future__ import annotations

from typing import Final

from .base import Page
from .browser_pages import StatusPage
from .history_page import STYLE, history_page
from .history_script import SCRIPT
from .visiting import visitor_of


class HistoryPage(StatusPage):
    """The last hour over time, which its script draws."""

    async def answer(self) -> None:
        if self.is_let_in():
            await self.answer_html()

    async def page(self) -> str:
        """Return the page."""
        overview = await self.site.watch.overview.get()
        return history_page(str(overview["name"]) or "weft", (await visitor_of(self)).name)


class HistoryData(Page):
    """The samples since the last question of a browser, in columns."""

    async def answer(self) -> None:
        self.demand_token()
        found = await self.ask(self.site.history.answer(self.get_query_argument("after", "")))
        if found is not None:
            self.set_header("Content-Type", "application/json")
            self.finish(found)


#: {path: arguments of `Asset`}
HISTORY_ASSETS: Final = {
    "/history.css": {"text": STYLE, "content_type": "text/css; charset=utf-8"},
    "/history.js": {"text": SCRIPT, "content_type": "text/javascript; charset=utf-8"},
}
