"""`weft.timeline.record`: the task stream of a block, with the changes of tasks and workers.

All three are read from the scheduler, twice per second, each from where the last reading ended. The
readings of changes cost it about as much as those of the task stream, and only while it lasts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ...protocol.errors import QuestionFailed, WeftError
from ...protocol.wire.answers import part_of, reading
from ...protocol.wire.messages.coordination import OWN_TOPIC
from ..coordination.topics import events_after
from ..shell.engine import Engine
from .asking import ask
from .cluster_info import describe_workers
from .recording import MemberChange, Recording, TaskChange
from .task_stream import StreamContext

if TYPE_CHECKING:
    from ..client import Client

#: Keys in all changes that one recording keeps; about 100 bytes each.
MAX_KEYS: Final = 3_000_000
#: {event of the scheduler: category, the fact that names it, change}
_EVENTS: Final = {
    "worker-joined": ("worker", "worker", "joined"),
    "worker-away": ("worker", "worker", "away"),
    "worker-back": ("worker", "worker", "back"),
    "worker-leaving": ("worker", "worker", "leaving"),
    "worker-left": ("worker", "worker", "gone"),
    "worker-lost": ("worker", "worker", "gone"),
    "client-connected": ("client", "client", "joined"),
    "client-left": ("client", "client", "gone"),
    "recovered": ("scheduler", "", "recovered"),
}


class ChangePages:
    """The changes of tasks that were read.

    Attributes:
        changes: those that are kept.
        n_missed: keys of changes that are not: the scheduler had forgotten them, or there were too
            many.
        is_known: the scheduler answers the question; an earlier version does not.
    """

    def __init__(self) -> None:
        self.changes: list[TaskChange] = []
        self.n_missed = 0
        self.is_known = True
        self._n_keys = 0
        self._cursor = ""

    async def read(self, engine: Engine) -> None:
        """Read what has come since the last time; the first time only where to go on.

        Raises:
            WeftError: see `ask`.
        """
        if not self.is_known:
            return
        try:
            async for page in ask(engine, "task_changes", {"after": self._cursor}):
                with reading("the scheduler"):
                    self._add(page)
        except QuestionFailed:
            if self._cursor:
                raise
            self.is_known = False

    def _add(self, page: dict[str, Any]) -> None:
        self._cursor = part_of(page, "cursor", str)
        self.n_missed += part_of(page, "n_missed", int)
        to_unix_s = part_of(page, "to_unix_s", float)
        for when, change, by, keys in part_of(page, "changes", list):
            if self._n_keys + len(keys) > MAX_KEYS:
                self.n_missed += len(keys)
                continue
            self._n_keys += len(keys)
            self.changes.append(TaskChange(to_unix_s + when, str(change), str(by), keys))


def member_change(when: float, event: dict[str, Any]) -> MemberChange | None:
    """Return the change that an event of the scheduler tells; None if it is of another kind."""
    found = _EVENTS.get(event.get("event", ""))
    if found is None:
        return None
    category, name, change = found
    facts = {fact: value for fact, value in event.items() if fact not in ("event", name)}
    if event["event"] == "worker-lost":
        facts = {"reason": "lost", **facts}
    return MemberChange(when, category, str(event.get(name, "")), change, facts)


class record_timeline(StreamContext):
    """Record what happens on a cluster within a `with` block; or `async with`.

    It has the attempts of all clients, as `weft.get_task_stream` has them; submissions,
    assignments and other changes of tasks; and workers that come and go. It takes the token of a
    client.

    Args:
        client: whose cluster it is; None = the current client.

    Example:
        >>> with weft.timeline.record() as recorder:
        ...     results = client.gather(client.map(f, range(100)))
        >>> for line in weft.timeline.transactions(recorder.recording):
        ...     print(line)
    """

    def __init__(self, client: Client | None = None) -> None:
        super().__init__(client)
        self._changes = ChangePages()
        self._members: list[MemberChange] = []
        #: Number of the last event that was read; None = none yet.
        self._last_event: int | None = None
        self._has_missed_events = False
        self._recording = Recording(())
        self._engine: Engine | None = None
        #: The last reading was interrupted.
        self._is_cut = False

    @property
    def recording(self) -> Recording:
        """What was recorded, once the block has ended; empty before."""
        return self._recording

    @property
    def n_attempts(self) -> int:
        """How many attempts were read so far."""
        return self._pages.n_rows

    @property
    def failure(self) -> WeftError | None:
        """Why the end of the recording is missing; None if it is not."""
        return self._failure

    @property
    def is_over(self) -> bool:
        """Whether nothing more can come: the client is closed, or has given up its scheduler."""
        engine = self._engine
        return engine is not None and (engine.is_gone or engine.core.end is not None)

    def __exit__(self, *error: object) -> None:
        try:
            super().__exit__(*error)
        except KeyboardInterrupt:  # the scheduler does not answer, and nobody waits for it
            self._end = self._end or self._pages.read_at
            self._is_cut = True
            self._finish()
            raise

    async def _start(self, engine: Engine) -> None:
        self._engine = engine
        await super()._start(engine)
        for address, worker in (await describe_workers(engine)).items():
            facts = {"nthreads": worker["nthreads"], "address": address, "host": worker["host"]}
            change = MemberChange(self._begin, "worker", worker["name"], "present", facts)
            self._members.append(change)

    async def _read(self, engine: Engine, keep_s: float) -> None:
        # Before the stream, so that what has ended has its submission.
        await self._changes.read(engine)
        await self._read_events()
        await super()._read(engine, keep_s)

    async def _read_events(self) -> None:
        assert self._client is not None, "it was entered"
        events, last, is_cut = await events_after(self._client, OWN_TOPIC, self._last_event)
        self._last_event = last
        self._has_missed_events |= is_cut
        changes = (member_change(when, event) for when, event in events)
        self._members += [change for change in changes if change is not None]

    async def _on_end(self, engine: Engine) -> None:
        pass

    def _finish(self) -> None:
        self._recording = Recording(
            sorted(self._pages.timings(), key=lambda one: one.stop),
            self._changes.changes,
            sorted(self._members, key=lambda one: one.time),
            self._begin,
            self._end,
            self._pages.n_missed,
            self._changes.n_missed,
            tuple(self._notes()),
        )

    def _notes(self) -> list[str]:
        notes = []
        if self._failure is not None:
            notes.append("the end, since the cluster was gone")
        if self._is_cut:
            notes.append("the end, which the scheduler had not answered yet")
        if self._pages.has_gap:
            notes.append("what ended while the scheduler was started again")
        if not self._changes.is_known:
            notes.append("changes of tasks, which this scheduler does not list")
        if self._has_missed_events:
            notes.append("some changes of workers and clients, which came too fast")
        return notes
