"""`client.profile`: which calls take the time of the tasks, by the stacks that workers sample.

Workers sample while they are asked, and some seconds more. So a profile is what they have sampled
between the first question and the last one, and nothing is to be switched on or off.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NoReturn

from ...protocol.durations import Duration, seconds_of
from ...protocol.errors import QuestionFailed, WeftError
from ...protocol.stack_tree import SampledCluster, WorkerSamples
from ...protocol.wire.answers import reading
from ...protocol.wording import counted
from ..dask.absent_names import unknown_option
from ..display.profile import Profile
from ..modes import on_loop
from ..shell.engine import Engine
from .asking import ask, ask_each
from .inspecting import TIMEOUT_S, find_workers

if TYPE_CHECKING:
    from ..client import Client
    from ..modes import Blocking

#: Workers are asked this often, and sample for so long after each question.
READ_S: Final = 2.0
KEEP_S: Final = 10.0
#: A profile of no time has no samples.
_LEAST_S: Final = 0.05


class StackReading:
    """The stacks that workers have sampled since the first `read`.

    Args:
        workers: names, hosts or addresses of those that are asked; None = all.
    """

    def __init__(self, workers: str | Iterable[str] | None = None) -> None:
        is_several = workers is not None and not isinstance(workers, str)
        self._workers = [*workers] if is_several else workers  # type: ignore[misc]
        self.cluster = SampledCluster()
        self._began: float | None = None
        self._read = 0.0
        #: {name of a worker: why it has not answered}, at the last time
        self._failed: dict[str, str] = {}

    async def read(self, engine: Engine) -> None:
        """Ask the workers.

        Raises:
            UnknownWorker: none has this name.
            WeftError: see `ask`.
        """
        found = await find_workers(engine, self._workers)
        if self._began is None:
            self._began = time.monotonic()
        answers = await ask_each(found, lambda address: _samples_of(engine, found[address]))
        self._read = time.monotonic()
        self._failed = {}
        for address, answer in answers.items():
            if isinstance(answer, WeftError):
                self._failed[found[address]["name"]] = str(answer)
            else:
                self.cluster.note(found[address]["id"], answer)

    @property
    def n_samples(self) -> int:
        """How many samples there are by now."""
        return self.cluster.total().n_samples

    def result(self, function: str | None = None) -> Profile:
        """Return the profile, as it is now."""
        tree = self.cluster.total()
        began = self._read if self._began is None else self._began
        notes: list[str] = []
        for name, text in list(self._failed.items())[:3]:
            notes.append(f"worker {name} gave no answer: {text}")
        return Profile(
            tree if function is None else tree.only(function),
            seconds=self._read - began,
            interval_s=self.cluster.interval_s,
            of=[counted(len(self.cluster.workers), "worker"), *([function] if function else [])],
            notes=notes,
        )


async def _samples_of(engine: Engine, worker: dict[str, Any]) -> WorkerSamples:
    process = f"worker {worker['name']}"
    question = ask(
        engine, "profile", {"keep_s": KEEP_S}, TIMEOUT_S, to=worker["id"], process=process
    )
    async for page in question:
        with reading(process):
            return WorkerSamples.from_info(page)
    raise QuestionFailed("it has no answer", process)


@on_loop
async def profile(
    engine: Engine,
    /,
    function: str | None = None,
    workers: str | Iterable[str] | None = None,
    seconds: Duration = 5.0,
    **others: NoReturn,
) -> Profile:
    """Sample for a while which calls take the time of the tasks that run, and return that.

    Print the result, or let a notebook show it; `.save("profile.html")` writes a flame graph.
    Workers sample each 20 ms, which takes about 1 % of a core, and only meanwhile.

        client.profile(seconds=10).save("profile.html")

    Args:
        function: the name of the function whose tasks are wanted; None = of all.
        workers: their names, hosts or addresses; None = all.
        seconds: how long, also as "1min". Ctrl-C ends it earlier, without a result.
        others: there are no others.

    Raises:
        UnknownWorker: no connected worker has this name.
        NotPermitted: the client's token does not permit it.
        ValueError: `seconds` is no time of at least 0.05 s.
    """
    for name in others:
        raise unknown_option(name, profile)  # type: ignore[arg-type]  # a method
    if not (function is None or isinstance(function, str)):
        raise TypeError(f"function= is the name of a function, not {function!r}")
    seconds_wanted = seconds_of(seconds, "seconds")
    if seconds_wanted < _LEAST_S:
        raise ValueError(f"seconds= is a time of at least {_LEAST_S} s, not {seconds!r}")
    reader = StackReading(workers)
    await reader.read(engine)
    end = time.monotonic() + seconds_wanted
    while (left := end - time.monotonic()) > 0:
        await asyncio.sleep(min(READ_S, left))
        await reader.read(engine)
    return reader.result(function)


def read_stacks(client: Client[Blocking], reader: StackReading) -> None:
    """Do a reading, and block."""
    client._run(reader.read(client._running()))
