"""The number of workers of a cluster, changed while it runs.

More workers are started by the supervisors that are connected, each on its machine; the ones with
the fewest workers start more. Fewer: supervisors give up workers that have not joined yet, and the
scheduler retires others, those whose end costs least. Numbers are absolute, so that a call that is
repeated has no further effect.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Final

from ..protocol.errors import NoAnswer, QuestionFailed
from .asking import ask
from .shell.engine import Engine

#: A supervisor runs no user code, so it answers soon.
_TIMEOUT_S: Final = 10.0


async def scale(engine: Engine, n: int) -> dict[str, Any]:
    """Have `n` workers in the whole cluster; do not wait for their starts and ends.

    Returns:
        `{"n_workers": n, "workers": {address: what becomes of a worker that leaves}}`.

    Raises:
        NotPermitted: the client's token is not that of an admin.
        QuestionFailed: no supervisor is connected that could start more, or one cannot.
    """
    places: dict[str, int] = {}
    async for page in ask(engine, "supervisors"):
        for supervisor in page["supervisors"]:
            places[supervisor] = len(await _places(engine, supervisor, None))
    n_alone = await _count_without_supervisor(engine, places)
    for supervisor, n_there in spread(places, n - n_alone).items():
        if n_there != places[supervisor]:
            places[supervisor] = len(await _places(engine, supervisor, n_there))
    n_now = n_alone + sum(places.values())
    if n_now < n and not places:
        raise QuestionFailed(
            f"no supervisor is connected that could start {n - n_now} more workers; start them "
            "with `weft worker`",
            "the cluster",
        )
    leaving: dict[str, Any] = {}
    if n_now > n:
        arguments = {"order": uuid.uuid4().hex, "keep": n, "wait": False}
        async for page in ask(engine, "retire", arguments):
            leaving |= page["workers"]
    return {"n_workers": n, "workers": leaving}


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


async def _places(engine: Engine, supervisor: str, n: int | None) -> list[str]:
    """Have places for `n` workers at a supervisor; return their names."""
    arguments = {} if n is None else {"n": n}
    names: list[str] = []
    process = f"supervisor {supervisor[:8]}"
    try:
        async for page in ask(
            engine, "scale", arguments, _TIMEOUT_S, to=supervisor, process=process
        ):
            names += page["names"]
    except NoAnswer:
        if n is not None:
            raise
    return names


async def _count_without_supervisor(engine: Engine, places: Mapping[str, int]) -> int:
    """Count the workers that no connected supervisor has started."""
    n = 0
    async for page in ask(engine, "workers"):
        for worker in page["workers"].values():
            n += worker["supervisor"] not in places and not worker["is_leaving"]
    return n
