"""Orders that an admin gives on a page, handed on to the scheduler, which checks the right to each.

Each returns what was done, in lines for display, and whether that is what was ordered.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from ...protocol.errors import NoAnswer, QuestionFailed
from ...protocol.wire.messages.questions import MAX_PLACES
from ...protocol.wording import counted
from ..overview.wording import describe_end
from .details import find_worker
from .visitor import Visitor

if TYPE_CHECKING:
    from .pages import Site

Done = tuple[list[str], bool]
_Giver = Callable[["Site", Visitor, str], Awaitable[Done]]

#: A supervisor runs no user code, so it answers soon.
_TIMEOUT_S: Final = 10.0


async def _order_tasks(site: Site, visitor: Visitor, name: str, key: str, done: str) -> Done:
    answer = await site.viewer.ask_all(name, {"keys": [key]}, visit=visitor.visit)
    end = str(answer["keys"].get(key, ""))
    is_done = end == "done"
    return [f"{key} {done}" if is_done else f"{key}: {end}"], is_done


async def _cancel(site: Site, visitor: Visitor, value: str) -> Done:
    return await _order_tasks(site, visitor, "cancel_tasks", value, "is cancelled.")


async def _retry(site: Site, visitor: Visitor, value: str) -> Done:
    return await _order_tasks(site, visitor, "retry_tasks", value, "runs again.")


async def _find(site: Site, value: str) -> dict[str, Any]:
    found = find_worker(await site.watch.workers.get(), value)
    if found is None:
        raise QuestionFailed(f"worker {value} is not connected any more")
    return found


async def _restart(site: Site, visitor: Visitor, value: str) -> Done:
    worker = await _find(site, value)
    arguments = {"workers": [worker["id"]]}
    answer = await site.viewer.ask_all("restart", arguments, visit=visitor.visit)
    end = answer["workers"].get(worker["id"])
    texts = {
        "asked": f"The process of worker {worker['name']} ends, and another one starts.",
        "gone": f"Worker {worker['name']} had left before.",
    }
    otherwise = f"Worker {worker['name']} has no supervisor that could start another process."
    return [texts.get(end, otherwise)], end == "asked"


async def _retire(site: Site, visitor: Visitor, value: str) -> Done:
    worker = await _find(site, value)
    arguments = {"order": uuid.uuid4().hex, "workers": [worker["id"]], "wait": False}
    answer = await site.viewer.ask_all("retire", arguments, visit=visitor.visit)
    ends = list(answer["workers"].values())
    return [describe_end(end) for end in ends], any(end["end"] != "kept" for end in ends)


async def _scale(site: Site, visitor: Visitor, value: str) -> Done:
    """Have a number of workers, as `weft scale` does; see `client/cluster/scaling.py`."""
    from ...client.cluster.scaling import spread

    if not value.isascii() or not value.isdigit() or len(value) > 6:
        raise QuestionFailed(f"{value[:20]!r} is no number of workers")
    n = int(value)

    async def places_at(supervisor: str, arguments: dict[str, Any]) -> int:
        process = f"supervisor {supervisor[:8]}"
        answer = await site.viewer.ask_all(
            "scale", arguments, _TIMEOUT_S, to=supervisor, process=process, visit=visitor.visit
        )
        return len(answer["names"])

    places: dict[str, int] = {}
    for supervisor in (await site.viewer.ask_all("supervisors"))["supervisors"]:
        try:
            places[supervisor] = await places_at(supervisor, {})
        except NoAnswer:
            places[supervisor] = 0
    workers = (await site.viewer.ask_all("workers"))["workers"].values()
    n_alone = sum(w["supervisor"] not in places and not w["is_leaving"] for w in workers)
    if n > n_alone + MAX_PLACES * len(places):
        raise QuestionFailed(
            f"the supervisors that are connected start at most {MAX_PLACES * len(places)} workers; "
            "start `weft worker` on more machines"
        )
    for supervisor, n_there in spread(places, n - n_alone).items():
        if n_there != places[supervisor]:
            places[supervisor] = await places_at(supervisor, {"n": n_there})
    lines = [f"{counted(n, 'worker')} wanted."]
    n_now, ends = n_alone + sum(places.values()), []
    if n_now > n:
        arguments = {"order": uuid.uuid4().hex, "keep": n, "wait": False}
        answer = await site.viewer.ask_all("retire", arguments, visit=visitor.visit)
        ends = list(answer["workers"].values())
        lines += [describe_end(end) for end in ends]
    return lines, all(end["end"] != "kept" for end in ends)


#: {order: what gives it}; the same as `order_page.ORDER_KINDS`.
GIVERS: Final[dict[str, _Giver]] = {
    "cancel": _cancel,
    "retry": _retry,
    "restart": _restart,
    "retire": _retire,
    "scale": _scale,
}
