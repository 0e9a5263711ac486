"""The checks of `weft selftest`: small tasks that show whether a cluster does its work.

The tasks import nothing of weft and little else. They run at the highest priority, so that a busy
cluster can be tested as well, and they use some MB for a moment.
"""

from __future__ import annotations

import hashlib
import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from ..client.client import Client

PRIORITY: Final = 9999
#: Of the names of all tasks here.
PREFIX: Final = "weft-selftest-"
_N_TASKS: Final = 1000
_NBYTES: Final = 4 << 20
#: Of many workers, so many are tested one by one.
_MAX_WORKERS: Final = 100


class Outcome(NamedTuple):
    """The result of one check."""

    name: str
    is_ok: bool
    text: str
    seconds: float

    def to_plain(self) -> dict[str, Any]:
        """Return it for programs."""
        return self._asdict()


class NotRight(Exception):
    """A check has not found what it should have."""


# --- Tasks ----------------------------------------------------------------------------------------


class Named:
    """A function of this module under a name that shows, wherever tasks are counted, whose it is.

    The statistics, failures and logs of a cluster keep the tasks of a self-test.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.__name__ = PREFIX + getattr(function, "__name__", "task")

    def __call__(self, *arguments: Any) -> Any:
        """Call the function."""
        return self._function(*arguments)


def add_one(x: int, mark: str) -> int:
    """Return a result that can be checked; `mark` makes the call one of this run."""
    return x + 1


def fail(text: str) -> None:
    """Raise an error that the client must get as it is."""
    raise LookupError(text)


def where(mark: str) -> int:
    """Return the process in which the task runs."""
    return os.getpid()


def make(nbytes: int, mark: str) -> bytes:
    """Return bytes that no compression or cache can stand for."""
    return hashlib.shake_256(mark.encode()).digest(nbytes)


def digest(data: bytes) -> str:
    """Return the hash of the bytes."""
    return hashlib.sha256(data).hexdigest()


def end_process(victim: int, mark: str) -> int:
    """Kill the worker in which this runs if it is the victim; another one returns its process."""
    if os.getpid() == victim:
        os.kill(victim, signal.SIGKILL)
    return os.getpid()


# --- Checks ---------------------------------------------------------------------------------------


class SelfTest:
    """One run of the checks on a cluster.

    Args:
        client: connected.
        n_workers: how many workers there must be at least.
        timeout_s: for each check.
        kills: kill one worker in the middle of a task of its own.
    """

    def __init__(self, client: Client, n_workers: int, timeout_s: float, kills: bool) -> None:
        self._client = client
        self._n_workers = n_workers
        self._timeout_s = timeout_s
        self._kills = kills
        self._mark = uuid.uuid4().hex

    def run(self) -> Iterator[Outcome]:
        """Yield the outcome of each check; none follows if there are not enough workers."""
        checks: list[tuple[str, Callable[[], str]]] = [
            ("workers", self.workers),
            ("results", self.results),
            ("each worker", self.each_worker),
            ("errors", self.errors),
            ("arguments", self.arguments),
            ("transfer", self.transfer),
        ]
        if self._kills:
            checks.append(("death of a worker", self.death))
        for name, check in checks:
            outcome = self._outcome(name, check)
            yield outcome
            if not outcome.is_ok and name == "workers":
                return

    def _outcome(self, name: str, check: Callable[[], str]) -> Outcome:
        start = time.perf_counter()
        try:
            text, is_ok = check(), True
        except TimeoutError:
            text, is_ok = f"no result within {self._timeout_s:g} s; 'weft info' shows why", False
        except Exception as error:  # of whatever the cluster does: the other checks go on
            text, is_ok = f"{type(error).__name__}: {error}", False
            if isinstance(error, NotRight):
                text = str(error)
        return Outcome(name, is_ok, text.partition("\n")[0], time.perf_counter() - start)

    def _submit(self, function: Callable[..., Any], *arguments: Any, workers: Any = None) -> Any:
        return self._client.submit(
            Named(function), *arguments, workers=workers, priority=PRIORITY, pure=False
        )

    def workers(self) -> str:
        """Wait for the workers."""
        self._client.wait_for_workers(self._n_workers, timeout=self._timeout_s)
        found = self._names()
        return f"{len(found)} connected: {', '.join(found[:5])}{' ...' if found[5:] else ''}"

    def _names(self) -> list[str]:
        found = self._client.scheduler_info()["workers"].values()
        return [worker["name"] for worker in found]

    def results(self) -> str:
        """Run many short tasks; each result must be right."""
        numbers = range(_N_TASKS)
        marks = [self._mark] * _N_TASKS
        futures = self._client.map(Named(add_one), numbers, marks, priority=PRIORITY, pure=False)
        found = _gathered(self._client, futures, self._timeout_s)
        if found != [x + 1 for x in numbers]:
            raise NotRight("some results of a map are not those of the function")
        return f"{_N_TASKS} tasks, each result right"

    def each_worker(self) -> str:
        """Run a task on each worker, by its name."""
        names = self._names()[:_MAX_WORKERS]
        futures = [self._submit(where, self._mark, workers=[name]) for name in names]
        deadline = time.monotonic() + self._timeout_s
        silent = []
        for name, future in zip(names, futures, strict=True):
            try:
                future.result(max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                silent.append(name)
        if silent:
            raise NotRight(f"no result from {', '.join(silent[:5])} in {self._timeout_s:g} s")
        return f"a task ran on each of {len(names)}"

    def errors(self) -> str:
        """Run a task that raises; its exception must come back as it is."""
        text = f"weft selftest {self._mark[:8]}: this error is meant"
        try:
            self._submit(fail, text).result(self._timeout_s)
        except LookupError as error:
            if error.args != (text,):
                raise NotRight(f"the exception of a task came back as {error!r}") from None
            return "the exception of a task came back"
        raise NotRight("a task that raises has no exception")

    def arguments(self) -> str:
        """Send a large argument, and read a large result."""
        data = make(_NBYTES, self._mark)
        if self._submit(digest, data).result(self._timeout_s) != digest(data):
            raise NotRight("a large argument arrived changed")
        if self._submit(make, _NBYTES, self._mark).result(self._timeout_s) != data:
            raise NotRight("a large result arrived changed")
        return f"{_NBYTES >> 20} MiB there and back"

    def transfer(self) -> str:
        """Make a result on one worker, and read it on another one."""
        names = self._names()
        if len(names) < 2:
            return "left out: there is one worker only"
        expected = digest(make(_NBYTES, self._mark))
        pairs = list(zip(names, [*names[1:], names[0]], strict=True))[:_MAX_WORKERS]
        made = [self._submit(make, _NBYTES, self._mark, workers=[name]) for name, _ in pairs]
        read = [
            self._submit(digest, future, workers=[other])
            for future, (_, other) in zip(made, pairs, strict=True)
        ]
        if set(_gathered(self._client, read, self._timeout_s)) != {expected}:
            raise NotRight("a result that another worker read was changed")
        return f"{_NBYTES >> 20} MiB from worker to worker, {len(pairs)} times"

    def death(self) -> str:
        """Kill a worker in the middle of a task; another process must run the task again."""
        names = self._names()
        name = names[0]
        victim = self._submit(where, self._mark, workers=[name]).result(self._timeout_s)
        # The worker that is started in its place has the same name, and nothing to kill.
        if (
            self._submit(end_process, victim, self._mark, workers=[name]).result(self._timeout_s)
            == victim
        ):
            raise NotRight("a worker that should have died has returned a result")
        self._client.wait_for_workers(len(names), timeout=self._timeout_s)
        return f"{name} was killed, its task ran again, and all {len(names)} workers are back"


def _gathered(client: Client, futures: list[Any], timeout_s: float) -> list[Any]:
    """Return the results of futures, all of them within `timeout_s`."""
    from ..client.waiting import wait

    wait(futures, timeout=timeout_s)
    found: list[Any] = client.gather(futures)
    return found
