"""What workers sample, as browsers see it: asked for once, whatever the number of browsers.

Workers sample while they are asked. So nothing runs while no browser looks, and a browser that
comes later sees what was sampled since the first one came, or the latest part of it. A visitor may
begin anew: how much each worker had by then is kept here, so that it holds whichever worker is
looked at later.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from typing import Any, Final

from ...protocol.errors import QuestionFailed
from ...protocol.flame_graph import as_data
from ...protocol.stack_tree import SampledCluster, SampleMark, WorkerSamples
from ...protocol.wire.answers import reading
from ...protocol.wording import counted, listed
from .viewer import Viewer
from .watching import ClusterWatch, SharedAnswer

#: An answer holds for at least so long, and for so much longer as making it took.
HOLDS_S: Final = 1.0
_HOLDS_PER_S: Final = 5.0
#: Workers sample for so long after each question; without one for so long all begins anew.
KEEP_S: Final = 10.0
#: Spans that can be chosen, seconds: the latest part of what was sampled. Between two marks.
SPANS_S: Final = (30, 300)
STEP_S: Final = 10.0
#: Beginnings that are kept, of all visitors.
MAX_BEGINNINGS: Final = 20
#: What a browser asks for that begins anew.
NOW: Final = "now"
#: Workers that are asked, and of these at the same time; seconds for the answer of each.
MAX_WORKERS: Final = 100
_N_AT_ONCE: Final = 20
_TIMEOUT_S: Final = 2.0


class ProfileWatch:
    """The profile of the cluster, since somebody looks."""

    def __init__(self, viewer: Viewer, watch: ClusterWatch) -> None:
        self._viewer = viewer
        self._watch = watch
        self._reading = SharedAnswer(self._read)
        self._visit = ""
        self._cluster = SampledCluster()
        self._began = self._read_at = 0.0
        #: {id: name} of workers
        self._names: dict[str, str] = {}
        self._notes: list[str] = []
        #: (when, how much had been sampled), for the longest span
        self._marks: deque[tuple[float, SampleMark]] = deque()
        #: {name: the same where a visitor has begun anew}, the oldest first
        self._beginnings: dict[str, tuple[float, SampleMark]] = {}
        #: {(name of a worker, "" = all; span; beginning): the answer}, of the last reading
        self._answers: dict[tuple[str, int, str], bytes] = {}

    async def answer(self, visit: str, worker: str, span_s: int = 0, since: str = "") -> bytes:
        """Return what browsers draw, for a visitor who may see it.

        Args:
            visit: the pass of the visitor, with whose rights the workers are asked.
            worker: the name of the only one that counts; "" = all.
            span_s: one of `SPANS_S`, about; 0 = all that was sampled.
            since: `NOW` = begin anew; else the name that the answer to that has for its beginning.
                One that is not kept any more counts as none, and the answer says so.

        Raises:
            TimeoutError, WeftError: the scheduler has not answered, or does not permit it.
        """
        self._visit = visit
        await self._reading.get()
        if since == NOW:
            since = self._begin_anew()
        elif since not in self._beginnings:
            since = ""
        asked = worker, span_s, since
        if asked not in self._answers:
            first = self._read_at - span_s
            began, mark = self._beginnings.get(since) or next(
                (one for one in reversed(self._marks) if span_s and one[0] <= first),
                (self._began, None),
            )
            ids = [i for i in self._cluster.workers if worker in ("", self._names.get(i))]
            tree = self._cluster.total(ids, mark)
            seconds = self._read_at - began
            data = as_data(tree, self._cluster.interval_s, seconds, self._notes)
            data.update(workers=sorted(self._names.values()), since=since)
            self._answers[asked] = json.dumps(data, separators=(",", ":")).encode()
        return self._answers[asked]

    def _begin_anew(self) -> str:
        """Keep how much has been sampled by now; return the name of that."""
        name = repr(self._read_at)
        if name not in self._beginnings:
            self._beginnings[name] = self._read_at, self._cluster.mark()
            if len(self._beginnings) > MAX_BEGINNINGS:
                del self._beginnings[next(iter(self._beginnings))]
        return name

    async def _read(self) -> None:
        begin = time.monotonic()
        if begin - self._read_at > KEEP_S:
            self._cluster, self._began = SampledCluster(), begin
            self._marks.clear()
            self._beginnings.clear()
        workers = [*(await self._watch.workers.get()).values()]
        turns = asyncio.Semaphore(_N_AT_ONCE)

        async def ask(worker: dict[str, Any]) -> str:
            """Ask a worker; return its name if it has not answered."""
            process = f"worker {worker['name']}"
            arguments, to = {"keep_s": KEEP_S}, worker["id"]
            async with turns:
                try:
                    info = await self._viewer.ask_all(
                        *("profile", arguments, _TIMEOUT_S),
                        to=to,
                        process=process,
                        visit=self._visit,
                    )
                    with reading(process):
                        self._cluster.note(to, WorkerSamples.from_info(info))
                except QuestionFailed:
                    return str(worker["name"])
            return ""

        silent = await asyncio.gather(*map(ask, workers[:MAX_WORKERS]))
        self._read_at = now = time.monotonic()
        if not self._marks or now - self._marks[-1][0] >= STEP_S:
            self._marks.append((now, self._cluster.mark()))
            while now - self._marks[0][0] > SPANS_S[-1] + STEP_S:
                self._marks.popleft()
        self._names = {worker["id"]: str(worker["name"]) for worker in workers}
        self._notes = []
        if names := [name for name in silent if name]:
            self._notes.append(f"No answer came from {listed(names[:5], len(names))}.")
        if (n_more := len(workers) - MAX_WORKERS) > 0:
            self._notes.append(f"{counted(n_more, 'more worker')} were not asked.")
        self._answers.clear()
        self._reading.holds_s = HOLDS_S + _HOLDS_PER_S * (self._read_at - begin)

    async def close(self) -> None:
        """End a reading that is under way."""
        await self._reading.close()
