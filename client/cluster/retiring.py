"""`Client.retire_workers`: workers that finish what they run, and leave."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NoReturn

from ...protocol.durations import Duration, seconds_or_none
from ...protocol.errors import NoAnswer, NotSupported
from ...protocol.wire.answers import part_of, reading
from ..insight.asking import ask
from ..insight.inspecting import find_workers, names_of
from ..modes import waits
from ..shell.engine import Engine

if TYPE_CHECKING:
    from ..client import Client

#: Options of dask's `retire_workers`, and what to use instead.
_ABSENT: Final = {
    "remove": "a worker that leaves is always removed; leave it out",
    "minimum": "keep= is the number of workers that stay",
    "target": "keep= is the number of workers that stay",
    "memory_ratio": "n= or keep= is a number of workers, and those without only copies go first",
    "key": "workers= names the workers",
    "attribute": "workers= names the workers, also by host",
}


@waits
def retire_workers(
    client: Client[Any],
    /,
    workers: str | Iterable[str] | None = None,
    close_workers: bool = True,
    *,
    names: str | Iterable[str] | None = None,
    n: int | None = None,
    keep: int | None = None,
    drop: bool = False,
    timeout: Duration | None = None,
    **others: NoReturn,
) -> dict[str, dict[str, Any]]:
    """Let workers finish what they run and leave; return when they are gone.

    Their unstarted tasks run elsewhere. Results that only they have are copied to workers that
    stay, before they go. Of several workers those go first whose end costs least: that run
    nothing and solely hold nothing. A worker is kept if the others have no room for what only it
    has and is still needed, or if it has an actor. A worker of a `LocalCluster` is not replaced.

    Args:
        workers: their addresses, names or hosts; None = `n` of all.
        close_workers: accepted for compatibility with dask; only True is allowed.
        names: the same as `workers`.
        n: how many of them leave; None = all that are named.
        keep: how many workers stay, in place of `n`.
        drop: keep none because of its results or actors: what no other worker has room for is
            lost, and computed again if it is still needed and can be.
        timeout: seconds, "30s", ...; the workers leave all the same, later.
        others: there are no others.

    Returns:
        ``{address: {"name", "end", "reason", "n_recomputed", "n_moved"}}``: the end is "left",
        "lost" (it died before), or "kept" for the reason; then how many of its results run again,
        and how many others have got.

    Raises:
        UnknownWorker: no connected worker has this name.
        TimeoutError: tasks still run after `timeout`, or results were not all moved.
        NotPermitted: the client's token is of a lower role than client.
    """
    wanted = _check_arguments(workers, names, n, keep, close_workers, others)
    timeout_s = seconds_or_none(timeout, "timeout")
    client._running()
    choice = {"workers": wanted, "n": n, "keep": keep, "losses": "drop" if drop else None}
    return client._run(_retire_of_client(client, choice, timeout_s))


async def _retire_of_client(
    client: Client[Any], choice: dict[str, Any], timeout_s: float | None
) -> dict[str, dict[str, Any]]:
    """Retire workers; a cluster object of the client then has the number of those that stay."""
    recount = getattr(client.cluster, "_recount", None)
    try:
        ends = await _retire(client._running(), choice, timeout_s)
    except TimeoutError:  # they leave all the same
        if recount is not None:
            await recount(client)
        raise
    if recount is not None:
        await recount(client)
    return ends


async def _retire(
    engine: Engine, choice: dict[str, Any], timeout_s: float | None
) -> dict[str, dict[str, Any]]:
    """Order it, and wait until they have left; what is None in the choice is left out."""
    # The order is asked again after a lost connection, and must not send more workers away.
    arguments: dict[str, Any] = {"order": uuid.uuid4().hex}
    arguments |= {name: value for name, value in choice.items() if value is not None}
    if "workers" in arguments:
        found = await find_workers(engine, arguments["workers"])
        arguments["workers"] = [worker["id"] for worker in found.values()]
    ends: dict[str, dict[str, Any]] = {}
    try:
        async for page in ask(engine, "retire", arguments, timeout_s):
            with reading("the scheduler"):
                ends |= part_of(page, "workers", dict)
    except NoAnswer as error:
        raise TimeoutError(
            f"the workers had not all left after {timeout_s:g} s: their tasks still run, or others "
            "have no room for their results; they get nothing more, and leave when that is over"
        ) from error
    return ends


def _check_arguments(
    workers: str | Iterable[str] | None,
    names: str | Iterable[str] | None,
    n: int | None,
    keep: int | None,
    close_workers: bool,
    others: dict[str, Any],
) -> list[str] | None:
    """Return the names of the workers; None = any of all.

    Raises:
        TypeError, ValueError, NotSupported: an argument is not valid.
    """
    for name in others:
        hint = _ABSENT.get(name, "see help(Client.retire_workers)")
        raise TypeError(f"retire_workers has no option {name!r}; {hint}")
    if close_workers is not True:
        raise NotSupported(
            "a worker that is retired ends: the scheduler does not keep workers that get nothing. "
            "Leave close_workers= out; workers= of submit and map chooses the workers that run "
            "your calls"
        )
    for name, value in (("n", n), ("keep", keep)):
        if value is not None and (type(value) is not int or value < 0):
            raise ValueError(f"{name}= is a number of workers, not {value!r}")
    given = [names_of(one) for one in (workers, names) if one is not None]
    wanted = sorted({name for some in given if some is not None for name in some})
    if not given and n is None and keep is None:
        raise ValueError(
            "retire_workers needs to know which: workers= names them, n= is how many leave, "
            "keep= how many stay; n=0 retires none, keep=0 all"
        )
    if n is not None and keep is not None:
        raise ValueError("n= is how many leave, keep= how many stay; give one of them")
    return wanted if given else None
