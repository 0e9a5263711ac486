"""`get_task_stream`: the records of the attempts that end, as they do, or lately.

A context manager follows the stream: it reads in the client's event loop twice per second, so that
attempts are forgotten before they were read only if they end faster than they can be read.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import functools
import logging
import os
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar, overload

from ...protocol.durations import Duration, seconds_of
from ...protocol.errors import NotSupported, WeftError
from ..display.page import TaskStreamPicture
from ..shell.both_ways import blocks_here, result_of
from ..shell.current import find_current
from ..shell.engine import Engine
from ..shell.short_tracebacks import short_tracebacks
from .attempt_timing import AttemptTiming, TaskRecords, record_of
from .stream_reading import StreamPages

if TYPE_CHECKING:
    from ..client import Client
    from ..modes import Awaited, Blocking

logger: Final = logging.getLogger("weft.client")

#: How often the stream is followed, and for how long times are recorded without that, seconds.
_PAUSE_S: Final = 0.5
_KEEP_S: Final = 30.0
#: For how long `Client.get_task_stream` has times recorded.
_KEEP_LATER_S: Final = 3600.0

C = TypeVar("C", bound="StreamContext")


@overload
def read_task_stream(
    client: Client[Blocking],
    start: Duration | None = None,
    stop: Duration | None = None,
    count: int | None = None,
    plot: Literal[False] = False,
    filename: str | os.PathLike[str] = "task-stream.html",
    bokeh_resources: None = None,
) -> list[dict[str, Any]]: ...
@overload
def read_task_stream(
    client: Client[Blocking],
    start: Duration | None = None,
    stop: Duration | None = None,
    count: int | None = None,
    *,
    plot: Literal[True, "save"],
    filename: str | os.PathLike[str] = "task-stream.html",
    bokeh_resources: None = None,
) -> tuple[list[dict[str, Any]], TaskStreamPicture]: ...
@overload
def read_task_stream(
    client: Client[Awaited],
    start: Duration | None = None,
    stop: Duration | None = None,
    count: int | None = None,
    plot: Literal[False] = False,
    filename: str | os.PathLike[str] = "task-stream.html",
    bokeh_resources: None = None,
) -> Coroutine[Any, Any, list[dict[str, Any]]]: ...
@overload
def read_task_stream(
    client: Client[Awaited],
    start: Duration | None = None,
    stop: Duration | None = None,
    count: int | None = None,
    *,
    plot: Literal[True, "save"],
    filename: str | os.PathLike[str] = "task-stream.html",
    bokeh_resources: None = None,
) -> Coroutine[Any, Any, tuple[list[dict[str, Any]], TaskStreamPicture]]: ...
def read_task_stream(
    client: Client[Any],
    start: Duration | None = None,
    stop: Duration | None = None,
    count: int | None = None,
    plot: bool | str = False,
    filename: str | os.PathLike[str] = "task-stream.html",
    bokeh_resources: None = None,
) -> Any:
    """Return the times of attempts that ended since the first call, the latest 100 000.

    The first call has times recorded for an hour, and returns what is there: mostly nothing.
    Each further one renews that. `weft.get_task_stream` is a context manager.

    Args:
        start: leave out what ended before: seconds since 1970 by the
            scheduler's clock, or a time before its now as "60s".
        stop: leave out what began later, likewise.
        count: how many, the latest; None = all.
        plot: True = return a picture as well, which notebooks show; "save" = also write it.
        filename: of that file, an HTML page that needs no other file.
        bokeh_resources: accepted for compatibility with dask; only None is allowed.

    Returns:
        A list of dicts in order of `stop`: `key`, `function`, `span`, `worker` (address),
        `name` (of the worker), `thread`, `attempt`, `status` ("OK" or "error"), `type`,
        `nbytes`, `waited` (seconds) and `startstops`: `[{"action", "start", "stop"}, ...]`,
        seconds since 1970, where the action is "compute" or "transfer". With `plot` the list
        and the picture.

    Raises:
        ValueError: an argument is out of range.
        NotPermitted: the client's token is of a lower role than client.
    """
    if bokeh_resources is not None:
        raise NotSupported("bokeh_resources=: leave it out, the page needs no other file")
    between = _when(start, "start"), _when(stop, "stop")
    if count is not None and (type(count) is not int or count < 0):
        raise ValueError(f"count= is a whole number >= 0, or None for all, not {count!r}")
    check_plot(plot)
    engine = client._running()
    pages = StreamPages()
    answer = functools.partial(_answer, pages, between, count, plot, filename)

    async def read() -> Any:
        await pages.read(engine, _KEEP_LATER_S)
        return answer() if blocks_here() else await _in_thread(answer)

    with short_tracebacks:
        return result_of(engine, read)


async def _in_thread(work: Callable[[], Any]) -> Any:
    """Do what may take seconds, for a million attempts, while the event loop goes on."""
    with ThreadPoolExecutor(1, "weft-task-stream") as pool:
        return await asyncio.get_running_loop().run_in_executor(pool, work)


def _answer(
    pages: StreamPages,
    between: tuple[_When | None, _When | None],
    count: int | None,
    plot: bool | str,
    filename: str | os.PathLike[str],
) -> Any:
    """Return the records, and with `plot` the picture, of what was read."""
    earliest, latest = (None if one is None else one.at(pages.read_at) for one in between)
    timings = [
        one
        for one in pages.timings()
        if (earliest is None or one.stop >= earliest) and (latest is None or one.start <= latest)
    ]
    timings.sort(key=lambda one: one.stop)
    if count is not None:
        timings = timings[len(timings) - min(count, len(timings)) :]
    records = TaskRecords(map(record_of, timings))
    if not plot:
        return records
    return records, draw(timings, earliest, latest, plot, filename)


class _When(NamedTuple):
    """A time: seconds since 1970, or before now."""

    seconds: float
    is_before_now: bool

    def at(self, now: float) -> float:
        """Return the time since 1970."""
        return now - self.seconds if self.is_before_now else self.seconds


def _when(value: Any, name: str) -> _When | None:
    """Return the time that an argument means; a text or timedelta is a time before now."""
    if value is None:
        return None
    if type(value) in (int, float):
        return _When(float(value), is_before_now=False)
    return _When(seconds_of(value, name), is_before_now=True)


def check_plot(plot: object) -> None:
    """Refuse other values of `plot=` than those that mean something.

    Raises:
        ValueError: it is one of them.
    """
    if not (isinstance(plot, bool) or plot == "save"):
        raise ValueError(f'plot= is False, True or "save" (also write the file), not {plot!r}')


def draw(
    timings: list[AttemptTiming],
    begin: float | None,
    end: float | None,
    plot: bool | str,
    filename: str | os.PathLike[str],
) -> TaskStreamPicture:
    """Return the picture of a task stream; with "save" write it to the file as well."""
    picture = TaskStreamPicture(timings, begin, end)
    if plot == "save":
        Path(filename).write_text(picture.page(), encoding="utf-8")
    return picture


class StreamContext(abc.ABC):
    """A context manager, also asynchronous, in which the task stream is followed.

    Args:
        client: whose cluster it is; None = the current client on entry.
    """

    def __init__(self, client: Client | None) -> None:
        self._given = client
        self._client: Client | None = None
        self._task: asyncio.Task[None] | None = None
        self._pages = StreamPages()
        #: Seconds since 1970 by the scheduler's clock, as the times of attempts.
        self._begin = self._end = 0.0
        #: When it was entered, by this process' clock.
        self._entered = 0.0
        #: Why the end of the stream is missing; None if it is not.
        self._failure: WeftError | None = None

    @abc.abstractmethod
    async def _on_end(self, engine: Engine) -> None:
        """Ask the cluster what is due on exit."""

    @abc.abstractmethod
    def _finish(self) -> None:
        """Make the results; also if the cluster could not be asked any more."""

    def _open(self, *, is_asynchronous: bool) -> Client:
        client = find_current() if self._given is None else self._given
        if not hasattr(client, "_running"):
            raise TypeError(f"client= is a weft.Client, not {type(client).__name__}")
        if client.asynchronous != is_asynchronous:
            name, word = type(self).__name__, "with" if is_asynchronous else "async with"
            kind = "a blocking" if is_asynchronous else "an asynchronous"
            raise TypeError(f"{name} of {kind} client needs `{word}`")
        if self._client is not None:
            raise RuntimeError(f"this {type(self).__name__} was entered before: make another one")
        self._client = client
        return client

    def __enter__(self: C) -> C:
        client = self._open(is_asynchronous=False)
        client._run(self._start(client._running()))
        return self

    async def __aenter__(self: C) -> C:
        client = self._open(is_asynchronous=True)
        await self._start(client._running())
        return self

    def __exit__(self, *_: object) -> None:
        assert self._client is not None, "it was entered"
        with self._failure_noted():
            self._client._run(self._stop(self._client))
        self._finish()

    async def __aexit__(self, *_: object) -> None:
        assert self._client is not None, "it was entered"
        with self._failure_noted():
            await self._stop(self._client)
        await _in_thread(self._finish)

    @contextlib.contextmanager
    def _failure_noted(self) -> Iterator[None]:
        try:
            yield
        except WeftError as failure:
            self._end = self._end or self._pages.read_at
            self._failure = failure
            logger.warning("the end of the task stream is missing: %s", failure)

    async def _read(self, engine: Engine, keep_s: float) -> None:
        """Read what has come since the last time, and have more recorded for `keep_s`."""
        await self._pages.read(engine, keep_s)

    async def _start(self, engine: Engine) -> None:
        await self._read(engine, _KEEP_S)
        self._pages.skip()
        self._begin = self._pages.read_at
        self._entered = time.monotonic()
        self._task = asyncio.get_running_loop().create_task(self._follow(engine))

    async def _follow(self, engine: Engine) -> None:
        while not engine.is_gone:
            await asyncio.sleep(_PAUSE_S)
            # If it fails for a lasting reason, so does the read at the end, which is reported.
            with contextlib.suppress(WeftError):
                await self._read(engine, _KEEP_S)

    async def _stop(self, client: Client) -> None:
        assert self._task is not None, "it was entered"
        self._task.cancel()
        await asyncio.wait([self._task])  # not `await task`: its cancellation is not ours
        if not self._task.cancelled():
            self._task.result()
        engine = client._running()
        await self._read(engine, 0)
        self._end = self._pages.read_at
        await self._on_end(engine)


class get_task_stream(StreamContext):
    """Collect the times of the attempts that end within a `with` block; or `async with`.

        with weft.get_task_stream() as stream:
            client.gather(client.map(f, range(100)))

        stream.data                         # a list of dicts, as `Client.get_task_stream` returns

    Attempts of all clients are listed. At most a million are kept.

    Args:
        client: whose cluster it is; None = the current client.
        plot: True = draw a picture, which notebooks show, as `figure`; "save" = also write it to
            `filename`.
        filename: of an HTML file that needs no other file.

    Example:
        >>> with weft.get_task_stream() as stream:
        ...     values = client.gather(client.map(abs, range(-10, 0)))
        >>> len(stream.data)
        10
    """

    def __init__(
        self,
        client: Client | None = None,
        plot: bool | str = False,
        filename: str | os.PathLike[str] = "task-stream.html",
    ) -> None:
        check_plot(plot)
        super().__init__(client)
        self._plot = plot
        self._filename = os.path.abspath(filename)  # the program may change its folder
        self._figure: TaskStreamPicture | None = None
        self._data: list[dict[str, Any]] | None = None

    @property
    def figure(self) -> TaskStreamPicture | None:
        """The picture, once the block has ended; None without `plot`."""
        return self._figure

    @property
    def data(self) -> list[dict[str, Any]]:
        """The records in order of `stop`, once the block has ended: see `Client`."""
        if self._data is None:
            if not self._end:
                return TaskRecords()
            self._data = TaskRecords(map(record_of, self._timings()))
        return self._data

    @property
    def n_missed(self) -> int:
        """Attempts that ended and are not listed.

        There were more than a million, or this program was suspended for long.
        """
        return self._pages.n_missed

    @property
    def is_complete(self) -> bool:
        """Whether all attempts are listed.

        Beside those of `n_missed` some are missing if the scheduler was replaced meanwhile, or the
        cluster was gone at the end.
        """
        return not (self._pages.n_missed or self._pages.has_gap or self._failure)

    def _timings(self) -> list[AttemptTiming]:
        return sorted(self._pages.timings(), key=lambda one: one.stop)

    async def _on_end(self, engine: Engine) -> None:
        pass

    def _finish(self) -> None:
        if self._plot:
            timings = self._timings()
            self._figure = draw(timings, self._begin, self._end, self._plot, self._filename)
