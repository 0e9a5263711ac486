"""How clients begin and end: they start or find their cluster, connect, and leave it.

A base class of `Client` and so of the client in tasks, which connects in its own way (`in_tasks`).
"""

from __future__ import annotations

import asyncio
import threading
import uuid
import weakref
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ..protocol.durations import Duration, seconds_of
from ..protocol.errors import ClientClosed, NotSupported
from ..protocol.host.blocking import blocked
from ..protocol.host.facts import process_facts
from ..protocol.net.session import Finder
from .calls.encoding import Encoder
from .display import describing
from .display.notebook import in_notebook
from .future import Future
from .insight import cluster_info
from .insight.comparing import Comparison, compare_soon
from .modes import T, as_result, waits
from .openable import Openable
from .shell.both_ways import blocks_here, result_of
from .shell.current import closed, opened
from .shell.engine import Engine
from .shell.in_task import awaits_here, is_in_task
from .shell.leaving import Holdings
from .shell.loop import LoopThread
from .shell.short_tracebacks import short_tracebacks

if TYPE_CHECKING:
    from .client import Client
    from .cluster.locating import Location
    from .display.output import TaskOutputs

Life = TypeVar("Life", bound="ClientLife")


class ClientLife(Openable):
    """A base class of `Client`: opens and closes it, and runs the work of its methods."""

    #: It becomes the one that `Client.current` returns.
    _set_as_default = False
    #: Shows what workers send; None in a task, where nobody looks.
    _shown: TaskOutputs | None = None

    if TYPE_CHECKING:

        @property
        def cluster(self) -> Any: ...

    @property
    def asynchronous(self) -> bool:
        """Whether the methods are awaited; in a task, whether that is a coroutine function."""
        return awaits_here(self.is_in_callers_loop)

    @asynchronous.setter
    def asynchronous(self, is_asynchronous: bool) -> None:
        #: It was made with `asynchronous=True`: it uses the loop of the program.
        self.is_in_callers_loop = is_asynchronous

    def _prepare(
        self,
        location: Location,
        name: str | None,
        timeout_s: float,
        reconnect_timeout_s: float,
        recovery_nbytes: int,
    ) -> None:
        """Set what a client has before it is open."""
        self._is_made_in_task = is_in_task()
        self._location = location
        self._timeout_s = timeout_s
        self._reconnect_timeout_s = reconnect_timeout_s
        self._recovery_nbytes = recovery_nbytes
        self.id = uuid.uuid4().hex
        self.name = name or f"client-{self.id[:8]}"
        self.status = "connecting"
        self._encoder = Encoder(self.id[:12])
        self._loop_thread: LoopThread | None = None
        self._engine: Engine | None = None
        self._glimpse = cluster_info.Glimpse()
        self._comparison: Comparison | None = None
        self._holdings = Holdings(self.name, location)

    def _open(self) -> None:
        try:
            loop_thread, engine = self._start()
            loop_thread.run_coroutine(self._connect(engine, self._location.finder()))
        except BaseException:
            self.status = "closed"
            self._holdings.give_back(0.0)
            raise
        self._opened()

    def _start(self) -> tuple[LoopThread, Engine]:
        """Start what a blocking client needs: its cluster, and the thread of its loop."""
        location = self._location
        location.start_cluster()
        # A cluster without processes runs on its own loop, and can only be joined there.
        self._loop_thread = location.loop_thread()
        if self._loop_thread is None:
            self._loop_thread = LoopThread("weft-client")
            self._holdings.owns_loop_thread = True
            self._holdings.loop_thread = self._loop_thread
            self._loop_thread.start()
        self._holdings.loop_thread = self._loop_thread
        self._engine = self._make_engine(self._loop_thread.loop)
        return self._loop_thread, self._engine

    async def _open_async(self: Life) -> Life:
        if self.status != "connecting":
            return self
        try:
            await self._location.start_cluster_async()
            self._engine = self._make_engine(asyncio.get_running_loop())
            self._holdings.engine = self._engine
            await self._connect(self._engine, self._location.finder())
        except BaseException:
            self.status = "closed"
            await self._location.close_async()
            raise
        self._opened()
        return self

    def _make_engine(self, loop: Any) -> Engine:
        client, nbytes = weakref.ref(self), self._recovery_nbytes
        engine = Engine(self.id, self.name, loop, self.is_in_callers_loop, client, nbytes)
        engine.shown = shown = self._shown
        engine.output = shown if shown is not None and shown.wants_lines else None
        return engine

    async def _connect(self, engine: Engine, find: Finder) -> None:
        try:
            await engine.open(find, process_facts(), self._timeout_s, self._reconnect_timeout_s)
            n_expected = self._location.take_n_expected()
            if n_expected:
                await cluster_info.expect_workers(engine, n_expected, self._timeout_s)
            if in_notebook():
                await self._glimpse.refresh(engine)
            self._comparison = await compare_soon(engine, self.cluster)
        except BaseException:
            await engine.close()
            raise

    def _opened(self) -> None:
        self.status = "running"
        self._holdings.engine = self._engine
        client = cast("Client", self)
        opened(client, self._holdings, self._timeout_s, as_default=self._set_as_default)
        describing.show_lists_of_futures(Future)

    @waits
    def close(self, timeout: Duration | None = None) -> None:
        """Leave the cluster. Pending futures are cancelled; a cluster that the client started ends.

        Results that are in this process stay readable. In a task this does nothing, unless a task
        has made the client: others use it, too.

        Args:
            timeout: for a blocking client, time to take leave of the scheduler; None = that of the
                client.
        """
        timeout_s = None if timeout is None else seconds_of(timeout, "timeout")
        if self.asynchronous:
            return as_result(self._close_async())
        if not self._is_lent_to_task:
            self._close(timeout_s)
        return None

    @property
    def _is_lent_to_task(self) -> bool:
        """True in a task of another one's client, as `get_client` returns it."""
        return not self._is_made_in_task and is_in_task()

    def _close(self, timeout_s: float | None) -> None:
        if self.status == "closed":
            return
        self._closing()
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        self._holdings.give_back(min(timeout_s, threading.TIMEOUT_MAX))

    async def _close_async(self) -> None:
        if self._is_lent_to_task:
            return
        if not self.is_in_callers_loop:  # in `async with`
            self._close(None)
        elif self.status != "closed":
            self._closing()
            await self._holdings.give_back_async()

    def _closing(self) -> None:
        self.status = "closed"
        closed(cast("Client", self))
        if self._comparison is not None:
            self._comparison.end()

    @waits
    def shutdown(self) -> None:
        """Stop scheduler and workers, for all their users, and close.

        Raises:
            NotPermitted: the token of this client is not that of an admin; it stays open.
            NotSupported: a task called it, which would wait for its own end.
        """
        if self._is_lent_to_task:
            raise NotSupported(
                "a task cannot stop the cluster that it runs in, which would wait for the end of "
                "the task: let it return, and call shutdown() where the client was made"
            )
        engine = self._running()

        async def end() -> None:
            await cluster_info.shut_down(engine)
            if blocks_here():
                self._close(None)
            else:
                await self._close_async()

        with short_tracebacks:
            return result_of(engine, end)

    def __enter__(self: Life) -> Life:
        super().__enter__()
        self._running()
        return self

    def _running(self) -> Engine:
        engine = self._engine
        if self.status != "running" or engine is None:
            if self.status == "connecting":
                raise ClientClosed("this asynchronous client is not open yet: await it first")
            raise ClientClosed(*([] if engine is None else [engine.closed_text]))
        if engine.output is not None:
            engine.note_level()  # a new level of the root logger holds for the calls made now
        return engine

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Do the work of a method, in the mode of this client: see `waits`."""
        if self.asynchronous:
            return as_result(coroutine)
        with short_tracebacks:
            if self._loop_thread is not None:
                return self._loop_thread.run_coroutine(coroutine)
            # A task that blocks, in a thread of the program whose client is asynchronous.
            with blocked():
                return asyncio.run_coroutine_threadsafe(coroutine, self._running().loop).result()
