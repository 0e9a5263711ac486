"""`Cluster`: what all kinds of clusters offer that a program can start, reach and scale.

A kind of cluster says how it is opened and closed, and how it gets another number of workers
(`_scale_to`). All else is here, for blocking and asynchronous use, over short-lived clients.
"""

from __future__ import annotations

import abc
import logging
import math
from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from ..client.dask.absent_names import unknown_option
from ..client.display import describing
from ..client.insight.cluster_info import scheduler_info, workers_there
from ..client.insight.inspecting import get_scheduler_logs, get_worker_logs
from ..client.modes import Mode, OfMode, T, as_result, waits, waits_to_be_read
from ..client.openable import Openable
from ..client.shell.short_tracebacks import short_refusals, short_tracebacks
from ..protocol.durations import Duration, seconds_of, seconds_or_none
from ..protocol.errors import ConfigError, NotSupported, WorkerStartTimeout
from ..protocol.settings.kinds import parse_bytes
from ..protocol.trust.page_access import link_into
from ..protocol.wording import counted
from . import settings
from .adapting import Adaptation
from .adaptive import AdaptiveConfig
from .processes.in_thread import in_thread

_log = logging.getLogger("weft.cluster")

if TYPE_CHECKING:
    from ..client.client import Client
    from ..protocol.trust.security import Security


class Cluster(OfMode[Mode], Openable):
    """A scheduler and workers, seen from the program that uses them."""

    name: str
    #: "created", "running" or "closed".
    status: str
    scheduler_address: str
    security: Security
    #: `http://...` of the pages, None = none.
    _pages_address: str | None = None
    #: Whether its processes run what is installed here, so that there are no versions to compare.
    shares_installation: ClassVar[bool] = False
    #: How many workers the cluster is to have.
    n_workers: int
    #: Threads of each worker, and its memory limit in bytes (0 = none), as far as they are known.
    threads_per_worker: int
    memory_limit: int
    #: Changes the number of workers by itself; None = it does not.
    _adaptation: Adaptation | None = None

    # --- For the kinds of clusters ----------------------------------------------------------------

    @abc.abstractmethod
    async def _scale_to(self, client: Client, n: int, losses: str = "keep") -> list[str]:
        """Have `n` workers soon; on the event loop of `client`. It may be repeated.

        Return why workers stay that are too many. `losses` is as for `scaling.scale_to`.
        """

    async def _scale_whole(self, client: Any, n: int, losses: str = "keep") -> dict[str, Any]:
        """Do what `Client.scale` does for a client of this cluster; an adaptation ends."""
        raise NotSupported(
            f"client.scale() starts workers by `weft worker`, and this {type(self).__name__} has "
            "others do that: use cluster.scale(n)"
        )

    async def _recount(self, client: Any) -> None:
        """Correct `n_workers`, as workers may have left; on the event loop of `client`."""

    def _scaled(self) -> tuple[int, int]:
        """Return how many workers `_scale_to` has set, and how many there are beside those."""
        return self.n_workers, 0

    def _n_to_await(self) -> int:
        """Return for how many workers `wait_for_workers` waits if it is given no number."""
        return self.n_workers

    def _rounded(self, n: int) -> int:
        """Return the number of workers that `_scale_to(n)` leads to."""
        return n

    @property
    @abc.abstractmethod
    def failure(self) -> str | None:
        """The reason why the cluster cannot be used any more; None while it can."""

    def _take_n_expected(self) -> int:
        """Return how many workers the first client waits for, so that it shows them; 0 later."""
        return 0

    async def _workers_there(self, client: Client, n: int, timeout_s: float | None) -> None:
        """Wait for `n` workers; on the event loop of `client`."""
        await workers_there(client._running(), n, timeout_s)

    async def _explained(self, error: WorkerStartTimeout) -> WorkerStartTimeout:
        """Return the error with what this kind of cluster knows about workers that are missing."""
        return error

    async def _wait_for(self, client: Client, n: int, timeout_s: float | None) -> None:
        """Do what `wait_for_workers` does; a client of this cluster does the same."""
        try:
            await self._workers_there(client, n, timeout_s)
        except WorkerStartTimeout as error:
            raise await self._explained(error) from None

    # --- Use ------------------------------------------------------------------------------------

    @property
    def dashboard_link(self) -> str | None:
        """A link to the status page, None = there are no pages.

        A `LocalCluster` has them if it is started with `dashboard_address=":0"`.

        It signs a browser in, once and within ten minutes; each look at this property makes a new
        one.
        """
        return link_into(self._pages_address, self.security)

    def get_client(self, **options: Any) -> Client[Mode]:
        """Return a client of this cluster; it does not close the cluster.

        Args:
            options: of `Client`.
        """
        from ..client.client import Client

        return Client(self, **{"asynchronous": self.asynchronous, **options})

    def _use(self, work: Callable[[Client[Any]], Coroutine[Any, Any, T]]) -> T:
        """Do something with a client of its own; an asynchronous cluster returns a coroutine."""
        if self.asynchronous:
            return as_result(self._use_async(work))
        with short_tracebacks, self.get_client(set_as_default=False, name="cluster") as client:
            return client._run(work(client))

    async def _use_async(self, work: Callable[[Client[Any]], Coroutine[Any, Any, T]]) -> T:
        async with self.get_client(set_as_default=False, name="cluster") as client:
            return await work(client)

    @waits
    def wait_for_workers(
        self, n_workers: int | None = None, timeout: Duration | None = None
    ) -> None:
        """Wait until `n_workers` (None = all) have joined.

        Raises:
            WorkerStartTimeout: fewer had joined after `timeout`: seconds, "30s", ...
        """
        timeout_s = seconds_or_none(timeout, "timeout")
        self._take_n_expected()  # the caller reports what is waited for

        async def wait(client: Client[Any]) -> None:
            if n_workers is None:
                await self._recount(client)
            await self._wait_for(
                client, self._n_to_await() if n_workers is None else n_workers, timeout_s
            )

        return self._use(wait)

    @waits_to_be_read
    def scheduler_info(self) -> dict[str, Any]:
        """The scheduler's description of itself, its workers and tasks; asynchronous: awaited."""
        return self._awaited("scheduler_info", lambda info: info)

    @waits_to_be_read
    def workers(self) -> dict[str, Any]:
        """The description of each worker, by address; asynchronous: awaited."""
        return self._awaited("workers", lambda info: info["workers"])

    def _awaited(
        self, name: str, choose: Callable[[dict[str, Any]], dict[str, Any]]
    ) -> dict[str, Any]:
        async def ask(client: Client[Any]) -> dict[str, Any]:
            return choose(await scheduler_info.on(client._running()))

        if self.asynchronous:
            return _Awaited(name, lambda: self._use_async(ask))  # type: ignore[return-value]
        return self._use(ask)

    @waits
    def get_logs(
        self, cluster: bool = True, scheduler: bool = True, workers: bool = True
    ) -> dict[str, str]:
        """Return the latest log lines: `{"Scheduler": text, address of a worker: text}`.

        Args:
            cluster: accepted for compatibility with dask; a cluster object logs with the program.
            scheduler: include those of the scheduler.
            workers: include those of the workers.
        """

        async def get(client: Client) -> dict[str, str]:
            engine = client._running()
            logs: dict[str, str] = {}
            if scheduler:
                rows = await get_scheduler_logs.on(engine)
                logs["Scheduler"] = "\n".join(line for _, line in rows)
            if workers:
                for address, found in (await get_worker_logs.on(engine)).items():
                    is_list = isinstance(found, list)
                    text = "\n".join(line for _, line in found) if is_list else str(found)
                    logs[address] = text
            return logs

        return self._use(get)

    # --- The number of workers --------------------------------------------------------------------

    @waits
    def scale(
        self,
        /,
        n: int | None = None,
        memory: str | int | None = None,
        cores: int | None = None,
        *,
        drop: bool = False,
        **others: NoReturn,
    ) -> None:
        """Have `n` workers soon. `wait_for_workers` waits until they have joined.

        Surplus workers finish what they run and leave, as by `Client.retire_workers`: first those
        whose end costs least. What only they have is moved; if the others have no room for it, a
        worker is kept, which is logged. An adaptation ends.

        Args:
            n: the number of workers.
            memory: that all of them may use, in bytes or like "64GB", in place of `n`.
            cores: the number of their threads, in place of `n`.
            drop: keep no worker because of its results or actors, which are lost then.
            others: there are no others.

        Raises:
            ConfigError: not exactly one of them is given, or it is no such number.

        Example:
            >>> with weft.LocalCluster(n_workers=1, processes=False) as cluster:
            ...     cluster.scale(2)
            ...     cluster.wait_for_workers(2)
            ...     len(cluster.workers)
            2
        """
        for name in others:
            raise unknown_option(name, Cluster.scale)
        with short_refusals:
            n_wanted = self._count(n, memory, cores)
        self._end_adaptation()

        async def scale(client: Client) -> None:
            self._warn_of(await self._scale_to(client, n_wanted, "drop" if drop else "keep"))

        return self._use(scale)

    def _warn_of(self, kept: list[str]) -> None:
        """Log which workers stay that are too many."""
        if kept:
            text = "%s keeps %s more than wanted: %s"
            why = "; ".join(dict.fromkeys(kept))
            _log.warning(
                text, self.name, counted(len(kept), "worker"), why, extra={"code": "workers-kept"}
            )

    def adapt(
        self,
        minimum: int = 0,
        maximum: int | None = None,
        *,
        interval: Duration = "1s",
        wait_up: Duration = "2s",
        wait_down: Duration = "30s",
        target_duration: Duration = "5s",
        **others: NoReturn,
    ) -> Adaptation:
        """Let the number of workers follow the work, from now on; `scale` ends it.

        The scheduler adds up what runs or could run, by the measured durations of the functions.

        Args:
            minimum: the least number of workers.
            maximum: the greatest; None = no limit.
            interval: how often the scheduler is asked.
            wait_up: how long more workers must have been desired before they are started.
            wait_down: how long fewer must have been desired before some leave.
            target_duration: time in which the workers should finish the work that is there.
            others: there are no others.

        Returns:
            an object with `log` (when it was scaled to how many) and `stop()`.
        """
        for name in others:
            raise unknown_option(name, Cluster.adapt)
        with short_refusals:
            config = AdaptiveConfig(
                minimum=minimum,
                maximum=maximum,
                interval_s=seconds_of(interval, "interval"),
                wait_up_s=seconds_of(wait_up, "wait_up"),
                wait_down_s=seconds_of(wait_down, "wait_down"),
                target_s=seconds_of(target_duration, "target_duration"),
            )
            config.check()
        self._end_adaptation()
        self._adaptation = Adaptation(self, config)
        self._adaptation.start()
        return self._adaptation

    def _end_adaptation(self) -> None:
        """Let the number of workers stay; for the caller's thread."""
        adaptation, self._adaptation = self._adaptation, None
        if adaptation is not None:
            adaptation.stop()

    async def _end_adaptation_async(self) -> None:
        adaptation, self._adaptation = self._adaptation, None
        if adaptation is not None:
            await adaptation.stop_async()

    async def _end_adaptation_on_loop(self) -> None:
        """Do what `_end_adaptation` does, on the event loop of a client."""
        if self.asynchronous:
            await self._end_adaptation_async()
        else:  # it waits for a task of this loop
            await in_thread(self._end_adaptation)

    def _count(self, n: int | None, memory: str | int | None, cores: int | None) -> int:
        given = [value for value in (n, memory, cores) if value is not None]
        if len(given) != 1:
            raise ConfigError(
                f"{len(given) or 'none'} of n=, cores= and memory= were given; give exactly one: "
                "n= is the number of workers, cores= of their threads, memory= what they may use "
                "in all",
                "scale",
            )
        if memory is not None:
            if not self.memory_limit:
                raise ConfigError("the workers have no memory limit; give n=", "memory")
            nbytes = parse_bytes(str(memory), "memory")
            n = math.ceil(nbytes / self.memory_limit)
        elif cores is not None:
            threads = settings.check_count(cores, "cores", 0)
            n = math.ceil(threads / max(1, self.threads_per_worker))
        return settings.check_count(n, "n", 0)

    def _repr_html_(self) -> str:
        return describing.of_cluster(self)

    def __reduce__(self) -> Any:
        raise TypeError("a cluster cannot be pickled; give tasks the scheduler's address instead")


class _Awaited:
    """A property of an asynchronous cluster: `await cluster.workers`.

    It sends no request before it is awaited, so that inspecting all attributes has no effect.
    """

    def __init__(self, name: str, ask: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self._name = name
        self._ask = ask

    def __await__(self) -> Generator[Any, None, Any]:
        return self._ask().__await__()

    def __repr__(self) -> str:
        return f"<{self._name} of an asynchronous cluster: use `await cluster.{self._name}`>"
