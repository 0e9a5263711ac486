"""Answers for programs, as JSON: the cluster, its workers, its size to aim at, pages to scrape."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlsplit

import tornado.web

from ...protocol.errors import QuestionFailed
from .base import Page

#: An autoscaler asks for the size of the cluster, and asks again within so long.
ADAPTS_S: Final = 300.0


class ClusterApi(Page):
    """The scheduler's `overview`."""

    async def answer(self) -> None:
        self.demand_token()
        await self.json_of(self.site.watch.overview.get())


class WorkersApi(Page):
    """All workers by address."""

    async def answer(self) -> None:
        self.demand_token()
        await self.json_of(self.site.watch.workers.get())


class ScaleApi(Page):
    """How many workers the present work is worth, for autoscalers such as KEDA."""

    async def answer(self) -> None:
        self.demand_token()
        arguments: dict[str, Any] = {"adapts_s": ADAPTS_S}
        text = self.get_query_argument("target", None)
        if text is not None:
            try:
                arguments["target_s"] = float(text)
            except ValueError:
                reason = "target is a number of seconds, for example 5"
                raise tornado.web.HTTPError(400, reason=reason) from None
        names = self.get_query_argument("resources", None)
        if names is not None:
            arguments["resources"] = [name for name in names.split(",") if name]
        try:
            await self.json_of(self.site.viewer.ask_all("desired", arguments))
        except QuestionFailed as error:
            raise tornado.web.HTTPError(400, reason=str(error).splitlines()[0]) from None


class Discovery(Page):
    """The metrics pages of workers, for Prometheus' HTTP service discovery."""

    async def answer(self) -> None:
        self.demand_token()
        await self.json_of(self._groups())

    async def _groups(self) -> list[dict[str, Any]]:
        urls = (await self.site.viewer.ask_all("metrics_pages"))["urls"]
        return [group for url in urls if (group := target_group(url))]


def target_group(url: str) -> dict[str, Any] | None:
    """Return the target of one metrics page, as `http_sd_configs` takes it.

    None if that is not the address of such a page: supervisors report it, and one that is wrong
    must neither hide those of the others nor have the token sent to another page.
    """
    try:
        parts = urlsplit(url)
        is_page = parts.scheme in ("http", "https") and parts.hostname and parts.port
    except ValueError:
        return None
    if not is_page or parts.username is not None or parts.path not in ("", "/metrics"):
        return None
    labels = {"__scheme__": parts.scheme, "__metrics_path__": "/metrics"}
    return {"targets": [parts.netloc], "labels": labels}
