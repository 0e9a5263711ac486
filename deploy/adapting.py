"""A cluster whose number of workers follows the work: the loop around `adaptive.Sizing`.

It has a client of its own. All its steps are coroutines on the event loop of that client, whether
the cluster is used asynchronously or not.
"""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import CancelledError as FutureCancelled
from concurrent.futures import Future as ThreadFuture
from typing import TYPE_CHECKING, Any, Final

from ..client.insight.asking import ask
from ..protocol.errors import ClientClosed, CommClosed, NotPermitted, WeftError
from .adaptive import AdaptiveConfig, Sizing

if TYPE_CHECKING:
    from ..client.client import Client
    from .cluster import Cluster

_log = logging.getLogger("weft.cluster")

#: Changes of the size that are kept for display.
_N_LOGGED: Final = 1000
_STOP_S: Final = 10.0
#: Each question announces that the cluster adapts for so long, and some intervals more.
_ADAPTS_S: Final = 60.0


class Adaptation:
    """One cluster that adapts, until `stop`.

    Attributes:
        config: its limits and times.
        log: `[(seconds since 1970, number of workers), ...]` of the latest changes.
    """

    def __init__(self, cluster: Cluster[Any], config: AdaptiveConfig) -> None:
        self.config = config
        self.log: list[tuple[float, int]] = []
        self._cluster = cluster
        self._client: Client | None = None
        #: The task on the running loop, or its stand-in for other threads.
        self._run: asyncio.Task[None] | ThreadFuture[None] | None = None

    def start(self) -> None:
        """Begin."""
        if self._cluster.asynchronous:
            self._run = asyncio.get_running_loop().create_task(self._adapt_async())
            return
        client = self._cluster.get_client(set_as_default=False, name="adaptation")
        self._client = client
        self._run = asyncio.run_coroutine_threadsafe(self._adapt(client), client.loop)

    def stop(self) -> None:
        """End; the number of workers stays as it is."""
        run, self._run = self._run, None
        if run is None:
            return
        run.cancel()
        client, self._client = self._client, None
        if client is not None:
            assert isinstance(run, ThreadFuture)
            try:
                run.result(_STOP_S)
            except (FutureCancelled, TimeoutError):
                pass
            except Exception:  # the cluster is to close all the same
                _log.exception(
                    "the adaptation of %s had failed",
                    self._cluster.name,
                    extra={"code": "scaling-failed"},
                )
            client.close()

    async def stop_async(self) -> None:
        """Do what `stop` does, and wait for it on the loop that runs."""
        run, self._run = self._run, None
        if isinstance(run, asyncio.Task):
            run.cancel()
            await asyncio.wait([run])

    @property
    def is_running(self) -> bool:
        """Whether it still adapts: it ends with the cluster, too."""
        return self._run is not None and not self._run.done()

    async def _adapt_async(self) -> None:
        async with self._cluster.get_client(set_as_default=False, name="adaptation") as client:
            await self._adapt(client)

    async def _adapt(self, client: Client) -> None:
        sizing = Sizing(self.config)
        loop = asyncio.get_running_loop()
        warned = ""
        while True:
            try:
                await self._step(client, sizing, loop.time())
                warned = ""
            except (ClientClosed, CommClosed, NotPermitted) as error:
                _log.warning(
                    "%s does not adapt any more: %s",
                    self._cluster.name,
                    error,
                    extra={"code": "scaling-ended"},
                )
                return
            except WeftError as error:
                if str(error) != warned:
                    warned = str(error)
                    _log.warning(
                        "%s cannot be scaled now: %s",
                        self._cluster.name,
                        error,
                        extra={"code": "scaling-failed"},
                    )
            except Exception as error:  # of a cluster of the user's own, or of the machine
                if repr(error) != warned:
                    warned = repr(error)
                    _log.exception(
                        "%s could not be scaled",
                        self._cluster.name,
                        extra={"code": "scaling-failed"},
                    )
            await asyncio.sleep(self.config.interval_s)

    async def _step(self, client: Client, sizing: Sizing, now: float) -> None:
        adapts_s = _ADAPTS_S + 10 * self.config.interval_s
        arguments: dict[str, Any] = {"target_s": self.config.target_s, "adapts_s": adapts_s}
        desired = 0
        async for page in ask(client._running(), "desired", arguments):
            desired = page["desired_workers"]
        await self._cluster._recount(client)
        n_now, n_beside = self._cluster._scaled()
        n = sizing.decide(now, max(desired - n_beside, 0), n_now)
        if n is None:
            return
        n = self._cluster._rounded(n)
        if n == n_now:
            return
        n += len(await self._cluster._scale_to(client, n))
        if n == n_now:
            return  # those that are too many are kept; they are asked again the next time
        _log.info("%s adapts from %d to %d workers", self._cluster.name, n_now, n)
        self.log.append((time.time(), n))
        del self.log[:-_N_LOGGED]

    def __repr__(self) -> str:
        state = "running" if self.is_running else "stopped"
        limits = f"{self.config.minimum} to {self.config.maximum or 'any number of'} workers"
        return f"<Adaptation of {self._cluster.name!r}: {state}, {limits}>"
