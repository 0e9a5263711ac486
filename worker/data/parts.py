"""Reads parts of values for tasks: what is here from the store, the rest from its holders.

A task that reads through an index (`protocol/values/parts.py`) does so on its own thread, which
waits for the answers of all holders at once. Each holder joins what it has to one value. Parts are
not stored: only one task reads them.

What a holder does not give is reported, as a copy that was not fetched. The scheduler makes results
again that are lost, and indexes that name nobody who has an input. So the task asks to be run
again, and reads the next index then.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...protocol.host.blocking import blocked
from ...protocol.values.parts import Taken, take_parts
from ...protocol.values.serialize import loads
from ...protocol.wire.message import MAX_ITEMS
from ...protocol.wire.messages import GetParts, KeysData
from ...protocol.wire.part_index import OUT_OF_REACH
from ...protocol.wire.payload import Blob
from ..core.features.memory import PartsMissing, ValueLost
from .packing import pack_result, raised_blob
from .parts_lost import PartsGone, PartsLost
from .spill_files import GoneValue

if TYPE_CHECKING:
    from ...protocol.wire.part_index import PartIndex
    from ..slots.executor import TaskExecutor
    from .peers import Peers
    from .store import Store

__all__ = ["PartReader", "pack_parts"]

#: The key under which parts are sent.
PARTS_KEY: Final = "parts"
#: Places, and numbers that name their parts, of one request: a list on the wire has a limit.
_MOST_LISTED: Final = MAX_ITEMS // 2
#: Seconds after which a reader lets another task run: an answer of a near holder is there earlier.
_BRIEF_S: Final = 0.005


class _Request(NamedTuple):
    holder: str
    places: list[int]
    numbers: list[int]
    answer: Future[Blob]


class PartReader:
    """Reads parts for the tasks of one worker. `fetch` is for their threads."""

    def __init__(
        self, executor: TaskExecutor, peers: Peers, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._executor = executor
        self._peers = peers
        self._loop = loop
        #: {address: when it did not give what it was asked for}: others are asked first
        self._failed: dict[str, float] = {}
        #: Readers that may let others begin: as many as threads, since each holds what it has got.
        self._waiting = threading.Semaphore(executor.state.n_seats)

    def fetch(
        self, index: PartIndex, places: Sequence[int], numbers: Sequence[int], n_numbers: int
    ) -> list[Taken]:
        """Return parts of the values of an index, see `read_parts`.

        Raises:
            PartsGone: some are not where the index says.
            UnsupportedRequest: a holder runs a version of weft that has no values with parts.
        """
        executor = self._executor
        store = executor.store
        here: list[tuple[int, int]] = []
        asked: dict[str, list[tuple[int, int]]] = {}
        failed = self._failed
        for i, place in enumerate(places):
            if index.attempts[place] in store:
                here.append((i, place))
                continue
            asked.setdefault(index.holder_of(place, failed), []).append((i, place))

        def named(rows: list[tuple[int, int]]) -> list[int]:
            if not n_numbers:
                return list(numbers)
            return [x for i, _ in rows for x in numbers[i * n_numbers : (i + 1) * n_numbers]]

        requests = []
        n_rows = max(1, _MOST_LISTED // max(1, n_numbers))
        for holder, all_rows in asked.items():
            for start in range(0, len(all_rows), n_rows):
                rows = all_rows[start : start + n_rows]
                request = _Request(holder, [place for _, place in rows], named(rows), Future())
                requests.append(request)
                self._loop.call_soon_threadsafe(self._ask, request, index, n_numbers)
        taken: list[Taken] = []
        reports: list[PartsMissing | ValueLost] = []
        if here:
            theirs = [place for _, place in here]
            views = Views(store, [index.attempts[place] for place in theirs])
            try:
                taken.append(Taken(theirs, take_parts(views, named(here), n_numbers)))
            except GoneValue:
                missing = views.missing()
                reports += map(ValueLost, missing)
                own = self._executor.context.address
                reports.append(_missing(index, theirs, missing, own))
        self._wait([request.answer for request in requests])
        why_unreached = ""
        for request in requests:
            try:
                blob = request.answer.result()
            except PartsLost as error:
                failed[request.holder] = time.monotonic()
                report = _missing(index, request.places, error.attempts, request.holder)
                reports.append(report)
                if report.is_unreachable:
                    why_unreached = f"{OUT_OF_REACH}: {request.holder}: {error}"
            else:
                taken.append(Taken(request.places, loads(blob)))
        if reports:
            raise PartsGone(why_unreached or "parts of results are not where they were", reports)
        return taken

    def _wait(self, answers: list[Future[Blob]]) -> None:
        """Wait for answers, and let another task use the thread meanwhile.

        A reader that has its answers and waits for the thread keeps no other one from letting go of
        it: the thread is given to the one that has waited longest, before a task begins.
        """
        if wait(answers, _BRIEF_S).not_done and self._waiting.acquire(blocking=False):
            with blocked():
                try:
                    wait(answers)
                finally:
                    self._waiting.release()

    def _ask(self, request: _Request, index: PartIndex, n_numbers: int) -> None:
        """Ask a holder, on the loop's thread."""
        self._peers.ask_parts(
            request.holder,
            [index.attempts[place] for place in request.places],
            request.numbers,
            n_numbers,
            request.answer,
        )


def _missing(
    index: PartIndex, places: Sequence[int], attempts: Sequence[int], holder: str
) -> PartsMissing:
    """Return the report that a holder does not have attempts.

    One that names none of these places has not answered.
    """
    keys = {index.attempts[place]: index.keys[place] for place in places}
    lost = [attempt for attempt in attempts if attempt in keys]
    is_unreachable = not lost
    lost = lost or list(keys)
    return PartsMissing([keys[attempt] for attempt in lost], lost, holder, is_unreachable)


class Views:
    """The values of attempts, which those who take parts of them read one after the other.

    What comes from files need not be in memory all at once.
    """

    def __init__(self, store: Store, attempts: Sequence[int]) -> None:
        self._store = store
        self._attempts = attempts
        self._gone: int | None = None

    def __len__(self) -> int:
        return len(self._attempts)

    def __iter__(self) -> Iterator[Any]:
        store = self._store
        if missing := self.missing():  # known before parts are taken, which may fail
            raise GoneValue(missing[0], "it is not here")
        for attempt in self._attempts:
            try:
                value = store.view(attempt)
            except GoneValue:
                self._gone = attempt
                raise
            except KeyError:
                if attempt in store:  # of its unpickling
                    raise
                raise GoneValue(attempt, "it is not here") from None
            yield value
            del value

    def missing(self) -> list[int]:
        """Return the attempts that are not here, after `GoneValue`."""
        return [a for a in self._attempts if a == self._gone or a not in self._store]


def pack_parts(store: Store, message: GetParts, worker: str) -> KeysData:
    """Return the answer to a request for parts: on a thread, since joining may run user code.

    What it raises is raised by the task that reads them, as if the values were there.
    """
    try:
        views = Views(store, message.attempts)
        try:
            parts = take_parts(views, message.numbers, message.n_numbers)
        except GoneValue:
            texts = [str(attempt) for attempt in views.missing()]
            return KeysData(request=message.request, keys=[], results=[], missing=texts)
        if type(parts) is list:
            parts = [_contiguous(part) for part in parts]
        blob = pack_result(parts, PARTS_KEY)
    except BaseException as error:  # of user code: SystemExit, and MemoryError, end no thread
        blob = raised_blob(error, PARTS_KEY, worker)
    return KeysData(request=message.request, keys=[PARTS_KEY], results=[blob], missing=[])


def _contiguous(part: Any) -> Any:
    """Return a copy of a box that lies apart in its array: else it would be copied twice."""
    flags = getattr(part, "flags", None)
    return part.copy() if flags is not None and not getattr(flags, "forc", True) else part
