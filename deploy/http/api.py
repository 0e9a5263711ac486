"""Answers for programs, as JSON: the cluster, its workers, and how many workers it should have."""

from __future__ import annotations

import tornado.web

from ...protocol.errors import QuestionFailed
from .base import Page


class ClusterApi(Page):
    """The scheduler's `overview`."""

    async def answer(self) -> None:
        self.demand_token()
        info = await self.ask(self.site.watch.overview())
        if info is not None:
            self.json(info)


class WorkersApi(Page):
    """All workers by address."""

    async def answer(self) -> None:
        self.demand_token()
        workers = await self.ask(self.site.watch.workers())
        if workers is not None:
            self.json(workers)


class ScaleApi(Page):
    """How many workers the present work is worth, for autoscalers such as KEDA."""

    async def answer(self) -> None:
        self.demand_token()
        arguments = {}
        text = self.get_query_argument("target", None)
        if text is not None:
            try:
                arguments["target_s"] = float(text)
            except ValueError:
                reason = "target is a number of seconds, for example 5"
                raise tornado.web.HTTPError(400, reason=reason) from None
        try:
            info = await self.ask(self.site.viewer.ask_one("desired", arguments))
        except QuestionFailed as error:
            raise tornado.web.HTTPError(400, reason=str(error).splitlines()[0]) from None
        if info is not None:
            self.json(info)
