"""The pages of tasks and workers, the search, and orders of admins, by path."""

from __future__ import annotations

import abc
from typing import Any, Final

import tornado.web

from ...protocol.errors import (
    CommError,
    NotPermitted,
    ProtocolError,
    QuestionFailed,
)
from . import order_page, search_page, task_page, worker_page
from .base import Page
from .browser_pages import REFRESH_S, StatusPage
from .details import search_facts, task_facts, worker_facts
from .documents import problem_page
from .order_page import ORDER_KINDS
from .ordering import GIVERS
from .status_page import name_of
from .visiting import is_own_form, visitor_of
from .visitor import Visitor

#: Keys are shorter.
_MAX_CHARS: Final = 2000


class _DetailPage(StatusPage):
    """A page about what its address names."""

    async def answer(self) -> None:
        if self.is_let_in():
            await self.answer_html()

    def argument(self, *names: str) -> str:
        """Return the first of these arguments of the address that is given."""
        for name in names:
            text = self.get_query_argument(name, "")
            if text:
                return text[:_MAX_CHARS]
        return ""

    async def cluster_name(self) -> str:
        """Return the name of the cluster, for the header."""
        return name_of(await self.site.watch.overview.get())


class TaskPage(_DetailPage):
    """One task."""

    async def page(self) -> str:
        """Return the page."""
        name, visitor = await self.cluster_name(), await visitor_of(self)
        key = self.argument("key")
        try:
            task = await task_facts(self.site.viewer, visitor, key)
        except QuestionFailed:
            self.set_status(404)
            return task_page.unknown_task_page(name, key, visitor)
        return task_page.task_page(name, task, visitor, REFRESH_S)


class WorkerPage(_DetailPage):
    """One worker."""

    async def page(self) -> str:
        """Return the page."""
        name, visitor = await self.cluster_name(), await visitor_of(self)
        address = self.argument("address", "id", "name")
        worker = await worker_facts(self.site, visitor, address)
        if worker is None:
            self.set_status(404)
            return worker_page.unknown_worker_page(name, address, visitor)
        return worker_page.worker_page(name, worker, visitor, REFRESH_S)


class SearchPage(_DetailPage):
    """Tasks, functions and workers that have a text in their names."""

    async def page(self) -> str:
        """Return the page."""
        name, visitor = await self.cluster_name(), await visitor_of(self)
        text = self.argument("q").strip()[: search_page.MAX_TEXT_CHARS]
        found = await search_facts(self.site, text) if text else None
        return search_page.search_page(name, text, found, visitor)


class _Api(Page, abc.ABC):
    """The same for programs, as JSON."""

    async def answer(self) -> None:
        self.demand_token()
        try:
            await self.json_of(self.found())
        except QuestionFailed as error:
            raise tornado.web.HTTPError(404, reason=error.text.splitlines()[0][:200]) from None

    @abc.abstractmethod
    async def found(self) -> Any:
        """Return what is asked for."""


class TaskApi(_Api):
    """One task."""

    async def found(self) -> Any:
        """Return all that is known of it."""
        key = self.get_query_argument("key", "")[:_MAX_CHARS]
        return await task_facts(self.site.viewer, await visitor_of(self), key)


class WorkerApi(_Api):
    """One worker."""

    async def found(self) -> Any:
        """Return all that is known of it."""
        name = self.get_query_argument("address", "") or self.get_query_argument("id", "")
        found = await worker_facts(self.site, await visitor_of(self), name[:_MAX_CHARS])
        if found is None:
            raise QuestionFailed("no connected worker has this address or id")
        return found


class SearchApi(_Api):
    """Tasks, functions and workers that have a text in their names."""

    async def found(self) -> Any:
        """Return what is found."""
        text = self.get_query_argument("q", "").strip()[: search_page.MAX_TEXT_CHARS]
        if not text:
            raise QuestionFailed("q= is the text to search for")
        return await search_facts(self.site, text)


class OrderPage(_DetailPage):
    """Asks whether to give an order (GET), and gives it (POST)."""

    async def page(self) -> str:
        """Ask."""
        name, visitor = await self.cluster_name(), await visitor_of(self)
        order = self.argument("do")
        kind = ORDER_KINDS.get(order)
        value = self.argument(kind.field) if kind else ""
        problem = _problem(visitor, order, value)
        if problem:
            self.set_status(403 if kind and value else 404)
            return order_page.refused_page(name, problem, visitor)
        shown = value
        if kind is not None and kind.field == "worker":
            workers = await self.site.watch.workers.get()
            shown = next((str(w["name"]) for w in workers.values() if w["id"] == value), value)
        return order_page.question_page(name, order, value, shown, visitor)

    async def post(self) -> None:  # type: ignore[mutable-override]
        """Give the order."""
        if not self.is_own_form() or not self.is_let_in():
            return
        try:
            name, visitor = await self.cluster_name(), await visitor_of(self)
            status, page = await self._give(name, visitor)
        except TimeoutError:
            text = "No answer came in time. Whether the order was followed is not known."
            self.html(problem_page(text, 0), 503)
        except (CommError, ProtocolError) as error:
            self.html(problem_page(f"There is no connection to the scheduler. ({error})", 0), 503)
        else:
            self.html(page, status)

    async def _give(self, name: str, visitor: Visitor) -> tuple[int, str]:
        order = self.get_body_argument("do", "")[:_MAX_CHARS]
        kind = ORDER_KINDS.get(order)
        value = "" if kind is None else self.get_body_argument(kind.field, "")[:_MAX_CHARS]
        problem = _problem(visitor, order, value)
        if not problem and not is_own_form(self, visitor):
            problem = "The form is not of this visit: go back, and open its page again."
        if problem:
            return 403, order_page.refused_page(name, problem, visitor)
        try:
            lines, is_done = await GIVERS[order](self.site, visitor, value)
        except (QuestionFailed, NotPermitted) as error:
            return 403, order_page.refused_page(name, str(error), visitor)
        page = order_page.done_page(name, order, value, lines, visitor, is_done=is_done)
        return 200, page


def _problem(visitor: Visitor, order: str, value: str) -> str:
    """Return why an order is not to be given, "" = it may be; the scheduler checks it again."""
    if order not in ORDER_KINDS or not value:
        return "There is no such order, or it does not say what it is about."
    if not visitor.may_order:
        return (
            "That takes a visit with the rights of an admin: `weft dashboard --role admin` "
            "prints a "
            "link for one."
        )
    return ""
