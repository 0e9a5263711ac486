"""`weft logs --follow`: prints log records as they come, of the scheduler and the workers.

Each process keeps its latest records and numbers them, so that it can be asked for those since the
last answer: nothing is kept in the scheduler between two questions, and a lost connection loses no
record that the processes still have. Questions to workers pass through the scheduler; their rate is
bounded, whatever the number of workers, so that following costs it a few percent of a core at most.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from ...client.insight.inspecting import choose_workers
from ...protocol.errors import (
    CommError,
    ConfigError,
    ConnectTimeout,
    NoAnswer,
    NotPermitted,
    ProtocolError,
    QuestionFailed,
    UnknownWorker,
)
from ...protocol.trust.connection_file import ConnectionFile
from ...protocol.wire.answers import part_of, reading
from ...protocol.wording import counted
from ..http.viewer import Viewer
from .info import TIMEOUT_S
from .log_rows import SCHEDULER, Row, read_rows

#: Processes are asked in rounds; in each round so many of them, in turns.
_ROUND_S: Final = 0.5
MAX_ASKED: Final = 25
#: The list of workers is read this often, and less often if it is long.
_LIST_S: Final = 5.0
_LIST_S_PER_WORKER: Final = 0.01
_RETRY_S: Final = (0.5, 1.0, 2.0, 5.0)


@dataclass
class Followed:
    """A process whose records are followed."""

    name: str  #: for display
    to: str  #: its id, "" = the scheduler
    #: the number of its next record; None = it has not been asked yet
    since: int | None = None
    is_silent: bool = False  #: it has not answered the last question
    is_asked: bool = False  #: a question is under way


@dataclass
class Following:
    """Which processes are followed, and which are asked next. Pure.

    Attributes:
        processes: by id.
        left: those that have left, by id: a new scheduler lists workers as they come back to it.
        turns: ids, the one that is asked next first.
    """

    processes: dict[str, Followed] = field(default_factory=dict)
    left: dict[str, Followed] = field(default_factory=dict)
    turns: deque[str] = field(default_factory=deque)

    def update(self, names: dict[str, str]) -> list[str]:
        """Follow these processes, {id: name}, and no others; return the names of those that left.

        A process that is or was there already goes on at its place.
        """
        known = {**self.left, **self.processes}
        gone = [p.name for to, p in self.processes.items() if to not in names]
        self.processes = {to: known.get(to) or Followed(name, to) for to, name in names.items()}
        self.left = {to: p for to, p in known.items() if to not in names}
        there = [to for to in self.turns if to in names]
        self.turns = deque(dict.fromkeys([*there, *names]))
        return gone

    def restart(self, to: str) -> None:
        """Begin again with a process: another one has taken its place."""
        if to in self.processes:
            self.processes[to].since = 0

    def next_round(self, limit: int = MAX_ASKED) -> list[Followed]:
        """Return the processes to ask now, at most `limit`; each has its turn."""
        chosen: list[Followed] = []
        for _ in range(len(self.turns)):
            if len(chosen) == limit:
                break
            followed = self.processes[self.turns[0]]
            self.turns.rotate(-1)
            if not followed.is_asked:
                chosen.append(followed)
        return chosen


class Follower:
    """Follows the logs of a cluster over lost connections.

    Args:
        find: returns the connection file; called before each attempt to connect.
        names: of workers, as `weft logs --worker` takes them; () = all processes.
        level: the least level of the records, "" = all.
        n: how many of the latest records come first.
        show: prints records, in the order of their times.
        note: prints a line about the following itself.
    """

    def __init__(
        self,
        find: Callable[[], ConnectionFile],
        names: tuple[str, ...],
        level: str,
        n: int,
        show: Callable[[Iterable[Row]], None],
        note: Callable[[str], None],
    ) -> None:
        self._find = find
        self._names = names
        self._level = level
        self._n = n
        self._show = show
        self._note = note
        self._following = Following()
        self._epoch = 0
        self._rows: list[Row] = []
        self._is_first = True
        self._n_failed = 0
        self._list_after_s = _LIST_S

    async def run(self) -> None:
        """Follow until it is cancelled.

        Raises:
            WeftError: the first connection failed, or the token does not permit it.
        """
        while True:
            try:
                await self._follow()
            except NotPermitted:
                raise
            except (CommError, ProtocolError, TimeoutError, ConfigError) as error:
                if self._is_first or isinstance(error, (QuestionFailed, UnknownWorker)):
                    raise
                if self._n_failed == 0:
                    self._note(f"the connection to the scheduler is lost ({error}); trying again")
                await asyncio.sleep(_RETRY_S[min(self._n_failed, len(_RETRY_S) - 1)])
                self._n_failed += 1

    async def _follow(self) -> None:
        """Follow until the connection is lost, which is an error."""
        found = self._find()
        viewer = Viewer(TIMEOUT_S)
        await viewer.open(found.addresses[0], found.to_security())
        try:
            await self._begin(viewer)
            self._n_failed = 0
            await self._rounds(viewer)
        finally:
            viewer.close()

    async def _begin(self, viewer: Viewer) -> None:
        epoch = (await viewer.ask_all("cluster"))["epoch"]
        if not self._is_first:
            self._note("the scheduler is back")
            if epoch != self._epoch:
                self._following.restart("")
        self._epoch = epoch
        await self._list(viewer)
        if self._is_first:
            # The latest records of all processes, merged, before the first new one.
            chosen = list(self._following.processes.values())
            for start in range(0, len(chosen), MAX_ASKED):
                await asyncio.gather(
                    *[self._ask(viewer, followed) for followed in chosen[start : start + MAX_ASKED]]
                )
            self._rows.sort(key=lambda row: row[0])
            self._rows = self._rows[-self._n :] if self._n else []
            self._is_first = False
            self._flush()

    async def _list(self, viewer: Viewer) -> None:
        workers = (await viewer.ask_all("workers"))["workers"]
        try:
            chosen = choose_workers(workers, set(self._names) or None)
        except UnknownWorker:
            if self._is_first:
                raise
            known = {w["name"] for w in workers.values()}.intersection(self._names)
            chosen = choose_workers(workers, known) if known else {}
        names = {worker["id"]: f"worker {worker['name']}" for worker in chosen.values()}
        if not self._names:
            names[""] = SCHEDULER
        for name in self._following.update(names):
            self._note(f"{name} has left")
        self._list_after_s = _LIST_S + _LIST_S_PER_WORKER * len(workers)

    async def _rounds(self, viewer: Viewer) -> None:
        loop = asyncio.get_running_loop()
        listed_s = loop.time()
        asking: set[asyncio.Task[None]] = set()
        try:
            while not viewer.closed.done():
                for followed in self._following.next_round():
                    asking.add(loop.create_task(self._ask(viewer, followed)))
                await asyncio.wait([viewer.closed], timeout=_ROUND_S)
                for task in [task for task in asking if task.done()]:
                    asking.discard(task)
                    task.result()
                self._flush()
                if loop.time() - listed_s > self._list_after_s and not viewer.closed.done():
                    await self._list(viewer)
                    listed_s = loop.time()
            raise viewer.closed.result()
        finally:
            for task in asking:
                task.cancel()
            if asking:
                await asyncio.wait(asking)
                for task in asking:
                    # Retrieved; each has the error of the connection.
                    _ = task.cancelled() or task.exception()

    async def _ask(self, viewer: Viewer, followed: Followed) -> None:
        """Ask a process for its records since the last answer."""
        arguments: dict[str, Any] = {"since": followed.since or 0}
        if followed.since is None:
            arguments = {"n": self._n if self._is_first else None}
            arguments = {name: value for name, value in arguments.items() if value is not None}
        if self._level:
            arguments["level"] = self._level
        followed.is_asked = True
        process = followed.name
        try:
            async for page in viewer.ask("logs", arguments, to=followed.to, process=process):
                with reading(process):
                    self._rows += read_rows(process, page)
                    followed.since = part_of(page, "end", int)
                    n_missed = page.get("n_missed", 0)
                if n_missed:
                    lost = counted(n_missed, "line")
                    self._note(f"{lost} of {process} came faster than they could be read")
        except NoAnswer as error:
            if not followed.is_silent:
                self._note(str(error))
            followed.is_silent = True
        else:
            followed.is_silent = False
        finally:
            followed.is_asked = False

    def _flush(self) -> None:
        rows, self._rows = self._rows, []
        if rows:
            self._show(sorted(rows, key=lambda row: row[0]))


def follow(follower: Follower) -> None:
    """Follow logs until Ctrl-C.

    Raises:
        WeftError: there is no scheduler, or it does not permit it.
    """
    try:
        asyncio.run(follower.run())
    except ConnectTimeout as error:
        raise CommError(str(error)) from None
    except TimeoutError:
        raise CommError("the scheduler does not answer") from None
    except KeyboardInterrupt:
        return
