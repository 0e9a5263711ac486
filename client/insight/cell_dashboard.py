"""`Client.dashboard`: what a cluster does now, in the cell of a notebook.

Everything comes through the kernel and the connection of the client: there is no extension and no
port that a browser would have to reach. A picture takes the place of the one before it, by a
message that all front ends know. A script in the cell that got what is new could keep its zoom, but
not all front ends run one in an output that is updated.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

from ...protocol.errors import WeftError
from ...protocol.tables import spaced
from ...protocol.timelines import LANE
from ...protocol.wording import counted
from ..display import ticking
from ..display.notebook import in_notebook
from ..display.page import in_cell, live_page
from ..display.painting import CellOutput
from ..shell.engine import Engine
from .asking import ask
from .attempt_timing import AttemptTiming
from .stream_reading import StreamPages

if TYPE_CHECKING:
    from ..client import Client

#: The part of time that is shown, and how often it is read and drawn, seconds.
SHOWN_S: Final = 60.0
READ_S: Final = 2.0
#: For how long the scheduler has times recorded after each reading.
_KEEP_S: Final = 10.0
#: Attempts that are shown, the latest ones.
_MAX_ROWS: Final = 100_000
#: The pause behind a picture is so many times as long as making it took, if that is more.
_PAUSES: Final = 5
#: It ends when no task has ended for so long: nobody knows whether somebody looks.
IDLE_S: Final = 1800.0
#: Pixels above and below the lanes, those of a lane if there are few, and of all that are seen
#: without scrolling.
_HEIGHT: Final = 400
_LANE: Final = 28
_MAX_LANES: Final = 32 * LANE
#: {state at the scheduler: title}.
_STATES: Final = {"processing": "At workers", "queued": "Queued", "waiting": "Waiting"}

#: What is drawn for each client; `ticking` holds it, and lets go of it at its end.
_shown: Final[weakref.WeakValueDictionary[Engine, LiveStream]] = weakref.WeakValueDictionary()


class Dashboard:
    """The workers, tasks and task stream of a cluster, live, as the last expression of a cell."""

    def __init__(self, client: Client[Any]) -> None:
        self._client = client

    def __repr__(self) -> str:
        link = self._client.dashboard_link
        return f"<Dashboard of {self._client.scheduler_address}: {link or 'it has no pages'}>"

    def _ipython_display_(self) -> None:
        if not in_notebook():
            print(repr(self))
            return
        engine = self._client._running()
        before = _shown.pop(engine, None)
        if before is not None:
            before.end("It goes on in the cell that was run later.")
        live = _shown[engine] = LiveStream(engine, CellOutput())
        live.draw()  # here, so that it is in this cell
        ticking.begin(live)


class LiveStream:
    """A picture that is read by the loop of the client, and drawn by the thread of displays."""

    def __init__(self, engine: Engine, output: CellOutput) -> None:
        self._engine = engine
        self._output = output
        self._pages = StreamPages()
        self._cluster: dict[str, Any] = {}
        self._reading: Future[None] | None = None
        self._next_reading = 0.0
        self._end = ""
        #: why the last reading has failed
        self._problem = ""
        self._drawn: Any = None
        self._changed_at = time.monotonic()

    def end(self, why: str) -> None:
        """Draw it once more, with the reason why no further picture comes."""
        self._end = why

    def draw(self) -> bool:
        """See `ticking.Drawn`."""
        now = time.monotonic()
        if self._engine.is_gone:
            self.end("The client is closed.")
        elif now - self._changed_at > IDLE_S:
            self.end("No task has ended for long: run the cell again.")
        elif now >= self._next_reading and (self._reading is None or self._reading.done()):
            self._next_reading = now + READ_S
            self._reading = asyncio.run_coroutine_threadsafe(self._read(), self._engine.loop)
        seen = self._pages.cursor, self._cluster, self._end, self._problem
        if seen != self._drawn:
            self._drawn, self._changed_at = seen, now
            self._show()
            took_s = time.monotonic() - now
            self._next_reading = max(self._next_reading, now + _PAUSES * took_s)
        return not self._end

    async def _read(self) -> None:
        """Read what is new; a failure of it is shown, and it is tried again."""
        try:
            await self._pages.read(self._engine, _KEEP_S)
            self._pages.drop_before(self._pages.read_at - SHOWN_S)
            self._pages.keep_latest(_MAX_ROWS)
            async for page in ask(self._engine, "cluster"):
                names = ("n_workers", "nthreads", "tasks")
                self._cluster = {name: page[name] for name in names}
            self._problem = ""
        except WeftError as error:
            self._problem = str(error)

    def _show(self) -> None:
        tiles = []
        if self._cluster:
            tasks, n_threads = self._cluster["tasks"], self._cluster["nthreads"]
            workers = spaced(self._cluster["n_workers"])
            tiles.append(("Workers", workers, f"with {counted(n_threads, 'thread')}"))
            tiles += [(title, spaced(tasks.get(name, 0)), "") for name, title in _STATES.items()]
        end = self._pages.read_at
        timings = [one for one in self._pages.timings() if one.stop >= end - SHOWN_S]
        begin = max(end - SHOWN_S, min((one.start for one in timings), default=0.0))
        timings = [one if one.start >= begin else _cut(one, begin) for one in timings]
        page = live_page(timings, begin, end, tiles, self._end or self._problem)
        text = ", ".join(f"{title.lower()}: {number}" for title, number, _ in tiles)
        n_lanes = len({(one.address, one.thread) for one in timings})
        height = _HEIGHT + min(_LANE * n_lanes, _MAX_LANES)
        self._output.show(in_cell(page, height), f"weft dashboard: {text or 'nothing read yet'}")


def _cut(timing: AttemptTiming, begin: float) -> AttemptTiming:
    """Return the part of an attempt from an instant on."""
    transfer = timing.transfer if timing.transfer and timing.transfer[0] >= begin else None
    waited = min(timing.waited, timing.stop - begin)
    return timing._replace(start=begin, waited=waited, transfer=transfer)
