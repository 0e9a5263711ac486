"""The metrics page of a family of workers: `weft worker --metrics-address`.

A process of its own serves it, so that neither a scrape delays a worker nor a task a scrape. It
asks no worker: it reads the files that they write once per second (`worker/measuring/numbers.py`),
and the figures of their processes from the system. It takes the view token, as the pages of a
scheduler do.
"""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import tornado.web
from prometheus_client import ProcessCollector
from prometheus_client.core import Metric as Family

from ...protocol.host.versions import weft_version
from ...protocol.reported import OF_SUPERVISORS, OF_WORKERS, values_of
from ...protocol.trust.security import Security, needs_tls, new_cluster_id, server_ssl_context
from ...worker.data.serving import for_listening
from ...worker.measuring.numbers import Numbers, read_numbers
from . import listening
from .base import Page
from .prometheus import add, build_info, encode, family_of

#: The label of all values: the worker's name, or "" for the supervisor.
WORKER: Final = "worker"


@dataclasses.dataclass
class FamilyPageConfig:
    """Where the page is served.

    Attributes:
        host: to listen at.
        port: 0 = any free one.
        directory: of the family, with the files of its processes.
        security: the cluster's, with the view token.
    """

    host: str
    port: int
    directory: str
    security: Security

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> FamilyPageConfig:
        """Read the configuration that the supervisor sends at the start."""
        return cls(**{**plain, "security": Security.from_plain(plain["security"])})


def families(found: list[Numbers]) -> Iterator[Family]:
    """Make the families of a page from what the processes have written."""
    yield build_info({"version": weft_version("unknown"), "python": platform.python_version()})
    for is_of_workers, table in ((True, OF_WORKERS), (False, OF_SUPERVISORS)):
        by_name = [
            (one.name, values_of(table, one.numbers))
            for one in found
            if bool(one.name) == is_of_workers
        ]
        for metric in table:
            family = family_of(metric, [WORKER])
            for name, values in by_name:
                add(family, values[metric.name], [name])
            yield family
    yield from _processes(found)


def _processes(found: list[Numbers]) -> Iterator[Family]:
    """Yield the usual figures of each process, which are fresh."""
    joined: dict[str, Family] = {}
    for one in found:
        pid = partial(int, one.pid)
        for family in ProcessCollector(pid=pid, registry=None).collect():
            known = joined.setdefault(family.name, family)
            samples = [s._replace(labels={**s.labels, WORKER: one.name}) for s in family.samples]
            known.samples = samples if known is family else [*known.samples, *samples]
    yield from joined.values()


class _AnyName:
    """Answer under any name: the page is for programs with a token; browsers have no cookie."""

    def __contains__(self, host: str) -> bool:
        return True


class _NoGate:
    """No browser is signed in."""

    def is_open_for(self, page: Page) -> bool:
        """See `Gate`."""
        return False

    def note_failure(self, page: Page) -> None:
        """Do nothing: this page has numbers only."""


class FamilySite:
    """The parts that the page needs, as `Site` has them for those of a scheduler."""

    def __init__(self, directory: Path, token: bytes) -> None:
        self.directory = directory
        self.token = token
        self.names = _AnyName()
        self.gate = _NoGate()


class _FamilyPage(Page):
    async def answer(self) -> None:
        self.demand_token()
        found = read_numbers(self.site.directory)  # type: ignore[attr-defined]
        page, content_type = encode(families(found), self.request.headers.get("Accept", ""))
        self.set_header("Content-Type", content_type)
        self.finish(page)


class _NoPage(Page):
    """Any other path, with any method."""

    def prepare(self) -> None:
        raise tornado.web.HTTPError(404)


async def serve(
    config: FamilyPageConfig,
    on_ready: Callable[..., None],
    wait_gone: Callable[[], Coroutine[Any, Any, None]],
) -> None:
    """Serve until `wait_gone` returns.

    Raises:
        ConfigError: the address cannot be listened at.
    """
    security, context = config.security, None
    if needs_tls(config.host):
        if security.cluster_id is None:
            security = dataclasses.replace(security, cluster_id=new_cluster_id())
        # The cluster's key is not here: without a certificate of its own it makes one.
        context = server_ssl_context(for_listening(security, "tls://127.0.0.1:1"))
    sockets = listening.bind(
        config.host, config.port, "metrics", "choose another --metrics-address"
    )
    site = FamilySite(Path(config.directory), security.token)
    application = tornado.web.Application(
        [("/metrics", _FamilyPage, {"site": site})],
        default_handler_class=_NoPage,
        default_handler_args={"site": site},
        log_function=lambda handler: None,
    )
    server = listening.start(application, sockets, context)
    on_ready(port=sockets[0].getsockname()[1])
    await wait_gone()
    await listening.stop(server)
