"""The number of workers of a cluster, changed while it runs: `Client.scale` and `weft scale`.

More workers are started by the supervisors that are connected, each on its machine; the ones with
the fewest workers start more. Fewer: supervisors give up workers that have not joined yet, and the
scheduler retires others, those whose end costs least. Numbers are absolute, so that a call that is
repeated has no further effect.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn

from ...protocol.durations import Duration, seconds_or_none
from ...protocol.errors import NoAnswer, NotPermitted, QuestionFailed
from ...protocol.wire.levels import Level
from ...protocol.wire.messages.questions import MAX_PLACES
from ..insight.asking import ask
from ..modes import waits
from ..shell.engine import Engine

if TYPE_CHECKING:
    from ..client import Client

#: A supervisor runs no user code, so it answers soon.
_TIMEOUT_S: Final = 10.0
#: How often the scheduler is asked whether the workers are there.
_POLL_S: Final = 0.2

#: Options of the `scale` of dask's clusters, and what to use instead.
_ABSENT: Final = {
    "jobs": "n= is the number of workers; weft counts no jobs",
    "cores": "n= is the number of workers; cores= is an option of a cluster object's scale",
    "memory": "n= is the number of workers; memory= is an option of a cluster object's scale",
    "n_workers": "it is called n",
}


def check_arguments(n: Any, others: Mapping[str, Any]) -> int:
    """Return the number of workers.

    Raises:
        TypeError, ValueError: an argument is not valid.
    """
    for name in others:
        hint = _ABSENT.get(name, "see help(weft.Client.scale)")
        raise TypeError(f"scale has no option {name!r}; {hint}")
    if type(n) is not int or n < 0:
        raise ValueError(f"n= is a number of workers, 0 or more, not {n!r}")
    return n


def demand_admin(engine: Engine) -> None:
    """Check that the client's token permits to scale: else the scheduler would refuse a part of it.

    Raises:
        NotPermitted: it is not that of an admin.
    """
    link = engine.link
    if link is not None and link.security.level < Level.ADMIN:
        raise NotPermitted("scale()", Level.ADMIN.label, link.security.level.label)


@waits
def scale(
    client: Client[Any],
    /,
    n: int,
    *,
    wait: bool = False,
    drop: bool = False,
    timeout: Duration | None = None,
    **others: NoReturn,
) -> dict[str, Any]:
    """Have `n` workers in the whole cluster, as `weft scale n` does.

    The connected `weft worker` processes start more, each on its machine, those with the fewest
    first. Workers that are too many finish what they run, and leave, as by `retire_workers`.
    With a `LocalCluster` it is its `scale`. The number is absolute: a call that is repeated
    changes nothing.

    Args:
        n: the number of workers.
        wait: return when they are there, and those that leave are gone; one leaves then as soon as
            others have room for its results. Without it, a worker is kept if they have none.
        drop: keep no worker because of its results or actors, which are lost then; one that leaves
            already, and waits for room, goes as well.
        timeout: of the wait: seconds, "30s", ...; the cluster is scaled all the same.
        others: there are no others.

    Returns:
        ``{address: {"name", "end", "reason", "n_recomputed", "n_moved"}}`` of the workers that
        leave, and of those that were kept, for the reason.

    Raises:
        NotPermitted: the client's token is not that of an admin.
        QuestionFailed: no `weft worker` is connected that could start more, or one cannot.
        TimeoutError: `wait` took longer than `timeout`.
        NotSupported: Kubernetes starts the workers: use the `scale` of the cluster.
    """
    n = check_arguments(n, others)
    timeout_s = seconds_or_none(timeout, "timeout")
    client._running()
    return client._run(scale_client(client, n, wait, timeout_s, drop=drop))


async def scale_client(
    client: Client[Any], n: int, wait: bool, timeout_s: float | None, *, drop: bool = False
) -> dict[str, Any]:
    """See `Client.scale`; a cluster object of the client does it in its own way."""
    losses = "drop" if drop else "wait" if wait else "keep"
    scale_whole = getattr(client.cluster, "_scale_whole", None)
    if scale_whole is not None:
        leaving: dict[str, Any] = await scale_whole(client, n, losses)
        n = client.cluster._rounded(n)
    else:
        leaving = await scale_to(client._running(), n, losses)
    if wait:
        await wait_until_there(client._running(), n + len(kept(leaving)), timeout_s)
    return leaving


def kept(leaving: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what `scale_to` returns of workers that stay although they are too many."""
    return [row for row in leaving.values() if row["end"] == "kept"]


async def scale_to(engine: Engine, n: int, losses: str = "keep") -> dict[str, Any]:
    """Have `n` workers in the whole cluster; do not wait for their starts and ends.

    `losses` is what becomes of results for which those that stay have no room: "keep" keeps their
    workers, "wait" lets these go later, "drop" loses the results.

    Returns:
        ``{address: what becomes of a worker that leaves, or is kept}``.

    Raises:
        NotPermitted: the client's token is not that of an admin.
        QuestionFailed: no supervisor is connected that could start more, or one cannot.
    """
    demand_admin(engine)
    places, n_alone = await _count(engine, takes_silence=True)
    demand_places(n, n_alone, len(places))
    for supervisor, n_there in spread(places, n - n_alone).items():
        if n_there != places[supervisor]:
            places[supervisor] = len(await have_places(engine, supervisor, n_there))
    n_now = n_alone + sum(places.values())
    if n_now < n and not places:
        raise QuestionFailed(
            f"no supervisor is connected that could start {n - n_now} more workers; start them "
            "with `weft worker`",
            "the cluster",
        )
    leaving = await let_drop(engine, is_leaving) if losses == "drop" else {}
    if n_now > n:
        arguments = {"order": uuid.uuid4().hex, "keep": n, "wait": False, "losses": losses}
        async for page in ask(engine, "retire", arguments):
            leaving |= page["workers"]
    return leaving


def is_leaving(worker: Mapping[str, Any]) -> bool:
    """Return whether a worker leaves already: an order to keep fewer does not reach it."""
    return bool(worker["is_leaving"])


async def let_drop(engine: Engine, is_meant: Callable[[Mapping[str, Any]], bool]) -> dict[str, Any]:
    """Let workers leave at once, although others have no room for what they have.

    Returns:
        ``{address: what becomes of a worker that is meant}``.
    """
    leaving: dict[str, Any] = {}
    pages = [page["workers"].values() async for page in ask(engine, "workers")]
    for workers in pages:
        ids = [worker["id"] for worker in workers if is_meant(worker)]
        if ids:
            arguments = {"order": uuid.uuid4().hex, "workers": ids, "wait": False, "losses": "drop"}
            async for page in ask(engine, "retire", arguments):
                leaving |= page["workers"]
    return leaving


def demand_places(n: int, n_alone: int, n_supervisors: int) -> None:
    """Check that the supervisors together may start so many workers; without one, none has to.

    Raises:
        QuestionFailed: they are more; no supervisor is asked for a part of them.
    """
    most = n_alone + MAX_PLACES * n_supervisors
    if n_supervisors and n > most:
        raise QuestionFailed(
            f"{n} workers are more than the limit of {most}: each `weft worker` starts at most "
            f"{MAX_PLACES}, and {n_supervisors} {'is' if n_supervisors == 1 else 'are'} connected; "
            "start it on more machines",
            "the cluster",
        )


async def count(engine: Engine, n_supervisors: int) -> int | None:
    """Return how many workers the cluster is to have: those that run or are being started.

    None = fewer supervisors than `n_supervisors` are connected.

    Raises:
        NotPermitted: the client's token is not that of an admin.
        NoAnswer: a supervisor did not answer.
    """
    places, n_alone = await _count(engine, takes_silence=False)
    return n_alone + sum(places.values()) if len(places) >= n_supervisors else None


async def wait_for_supervisor(engine: Engine, timeout_s: float) -> None:
    """Wait until a supervisor is connected, at most for `timeout_s`."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while loop.time() < deadline:
        async for page in ask(engine, "supervisors"):
            if page["supervisors"]:
                return
        await asyncio.sleep(_POLL_S / 10)


async def wait_until_there(engine: Engine, n: int, timeout_s: float | None) -> None:
    """Wait until `n` workers run and none is about to leave.

    Raises:
        TimeoutError: that takes longer than `timeout_s`; the text has the numbers.
    """
    loop = asyncio.get_running_loop()
    started = loop.time()
    counts: dict[str, int] = {}
    while True:
        async for page in ask(engine, "overview"):
            counts = page["n_workers"]
        if counts["running"] + counts.get("paused", 0) == n and not counts["leaving"]:
            return
        if timeout_s is not None and loop.time() >= started + timeout_s:
            found = ", ".join(f"{k} {state}" for state, k in counts.items())
            raise TimeoutError(
                f"there are not {n} workers after {timeout_s:g} s: {found}; their logs have the "
                "reason if some do not start, and those that leave first finish what they run"
            )
        await asyncio.sleep(_POLL_S)


async def _count(engine: Engine, *, takes_silence: bool) -> tuple[dict[str, int], int]:
    """Return `{supervisor: its workers}`, and the number of workers of no connected one.

    `takes_silence` counts none for a supervisor that does not answer, which is an error otherwise.
    """
    places: dict[str, int] = {}
    async for page in ask(engine, "supervisors"):
        for supervisor in page["supervisors"]:
            try:
                places[supervisor] = len(await have_places(engine, supervisor, None))
            except NoAnswer:
                if not takes_silence:
                    raise
                places[supervisor] = 0
    return places, await _count_without_supervisor(engine, places)


def spread(places: Mapping[str, int], n: int) -> dict[str, int]:
    """Return how many workers each supervisor should have, so that they have `n` in all.

    The one with the fewest gets the next one, and the one with the most gives one up.
    """
    wanted = dict(places)
    if not wanted:
        return wanted
    for _ in range(n - sum(wanted.values())):
        wanted[min(wanted, key=wanted.__getitem__)] += 1
    while sum(wanted.values()) > max(n, 0):
        wanted[max(wanted, key=wanted.__getitem__)] -= 1
    return wanted


async def have_places(engine: Engine, supervisor: str, n: int | None) -> list[str]:
    """Have places for `n` workers at a supervisor; return their names."""
    arguments = {} if n is None else {"n": n}
    names: list[str] = []
    process = f"supervisor {supervisor[:8]}"
    async for page in ask(engine, "scale", arguments, _TIMEOUT_S, to=supervisor, process=process):
        names += page["names"]
    return names


async def _count_without_supervisor(engine: Engine, places: Mapping[str, int]) -> int:
    """Count the workers that no connected supervisor has started."""
    n = 0
    async for page in ask(engine, "workers"):
        for worker in page["workers"].values():
            n += worker["supervisor"] not in places and not worker["is_leaving"]
    return n
