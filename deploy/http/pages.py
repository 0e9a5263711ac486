"""The pages by path, and what they share.

`/healthz` answers whether the scheduler answers, on the connection that this process keeps;
`/readyz`, whether it accepts a new connection, which it may not while too many are open, and
assigns tasks, which a new scheduler does not while it waits for the peers of the last one. Neither
asks for workers: they could not join by way of a service that waits for them. All other pages need
the view token (`base.py`) or a cookie (`browser_access.py`).
"""

from __future__ import annotations

import logging
import os
import platform
from collections.abc import Iterable
from functools import partial
from typing import Any, Final

import tornado.web

from ...protocol.errors import ConnectTimeout, WeftError
from ...protocol.host.versions import weft_version
from ...protocol.trust.security import Security
from .api import ClusterApi, Discovery, ScaleApi, WorkersApi
from .base import Page, ServerNames
from .browser_access import Gate
from .browser_pages import (
    ASSETS,
    Asset,
    LoginPage,
    LogoutPage,
    MissingPage,
    StatusPage,
    StreamData,
    StreamPage,
    WorkersPage,
)
from .detail_pages import (
    OrderPage,
    SearchApi,
    SearchPage,
    TaskApi,
    TaskPage,
    WorkerApi,
    WorkerPage,
)
from .history_pages import HISTORY_ASSETS, HistoryData, HistoryPage
from .history_watch import HistoryWatch
from .picture_pages import GraphPage, ProfileData, ProfilePage
from .profile_watch import ProfileWatch
from .prometheus import render
from .stream_watch import StreamWatch
from .viewer import Viewer, check_acceptance, describe_cluster
from .watching import ClusterWatch, SharedAnswer

_log = logging.getLogger("weft.http")


class _Healthz(Page):
    async def answer(self) -> None:
        if await self.ask(self.site.probed.get()) is not None:
            self.text("ok")


class _Readyz(Page):
    async def answer(self) -> None:
        try:
            await self.site.acceptance.get()
        except (ConnectTimeout, TimeoutError):
            self.text("scheduler-silent", 503)
        except WeftError:
            self.text("scheduler-refuses", 503)
        else:
            values = await self.ask(self.site.probed.get())
            if values is not None and values.get("recovering"):
                self.text("recovering", 503)
            elif values is not None:
                self.text("ready")


class _MetricsPage(Page):
    async def answer(self) -> None:
        self.demand_token()
        values = await self.ask(self.site.viewer.metrics())
        if values is not None:
            accept = self.request.headers.get("Accept", "")
            page, content_type = render(values, self.site.facts, accept, self.site.scheduler_pid)
            self.set_header("Content-Type", content_type)
            self.finish(page)


_PAGES: Final[dict[str, type[Page]]] = {
    "/": StatusPage,
    "/api/v1/cluster": ClusterApi,
    "/api/v1/scale": ScaleApi,
    "/api/v1/search": SearchApi,
    "/api/v1/task": TaskApi,
    "/api/v1/worker": WorkerApi,
    "/api/v1/workers": WorkersApi,
    "/graph": GraphPage,
    "/healthz": _Healthz,
    "/history": HistoryPage,
    "/history/data": HistoryData,
    "/login": LoginPage,
    "/logout": LogoutPage,
    "/metrics": _MetricsPage,
    "/order": OrderPage,
    "/profile": ProfilePage,
    "/profile/data": ProfileData,
    "/readyz": _Readyz,
    "/sd": Discovery,
    "/search": SearchPage,
    "/stream": StreamPage,
    "/stream/data": StreamData,
    "/task": TaskPage,
    "/worker": WorkerPage,
    "/workers": WorkersPage,
}


class Site:
    """The pages and what they need."""

    def __init__(
        self,
        viewer: Viewer,
        gate: Gate,
        security: Security,
        scheduler_address: str,
        host: str,
        given_names: Iterable[str],
    ) -> None:
        self.viewer = viewer
        #: It has started this process.
        self.scheduler_pid = os.getppid()
        self.token = security.token
        self.names = ServerNames(host, given_names)
        self.gate = gate
        self.watch = ClusterWatch(viewer)
        self.stream = StreamWatch(viewer)
        self.history = HistoryWatch(viewer)
        self.profile = ProfileWatch(viewer, self.watch)
        #: Probes need no token: they may not make the scheduler count or authenticate at any rate.
        self.probed = SharedAnswer(viewer.metrics)
        self.acceptance = SharedAnswer(partial(check_acceptance, scheduler_address, security))
        self.facts = {"version": weft_version("unknown"), "python": platform.python_version()}

    async def describe(self) -> dict[str, Any]:
        """Describe the cluster and name the pages, for programs."""
        return {"pages": [*_PAGES], "cluster": await describe_cluster(self.viewer)}

    async def close(self) -> None:
        """End questions that are under way."""
        shared = (self.probed, self.acceptance, self.watch)
        for answer in (*shared, self.stream, self.history, self.profile):
            await answer.close()

    def application(self) -> tornado.web.Application:
        """Return the pages by path."""
        return tornado.web.Application(
            [
                *((path, page, {"site": self}) for path, page in _PAGES.items()),
                *(
                    (path, Asset, {"site": self, **asset})
                    for path, asset in (ASSETS | HISTORY_ASSETS).items()
                ),
            ],
            default_handler_class=MissingPage,
            default_handler_args={"site": self},
            log_function=_log_request,
        )


def _log_request(handler: tornado.web.RequestHandler) -> None:
    # Tornado's own function warns of every 4xx: a scan of the ports would fill the log.
    request = handler.request
    _log.debug("%s %s %s %d", request.remote_ip, request.method, request.path, handler.get_status())
