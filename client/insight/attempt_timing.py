"""The times of one attempt to run a task, as the task stream has them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ...protocol.wire.keys import Key
from ...protocol.wording import counted, lasting


class AttemptTiming(NamedTuple):
    """One attempt to run a task. Times are seconds since 1970, by the scheduler's clock."""

    key: Key
    function: str  #: its name
    span: tuple[str, ...]  #: the tags of the spans in which it was submitted, outermost first
    worker: str  #: its name
    address: str  #: of the worker
    thread: int  #: its number at the worker
    attempt: int
    is_failed: bool
    type: str  #: of the result, or of the exception
    nbytes: int  #: of the result
    start: float
    stop: float
    waited: float  #: seconds of the time between them in which the task waited
    #: when it came to the worker, and when the last of the inputs that were fetched was there;
    #: None if none was
    transfer: tuple[float, float] | None
    options: Mapping[str, Any] = MappingProxyType({})  #: those of the task that are shown


def record_of(timing: AttemptTiming) -> dict[str, Any]:
    """Return a timing as a record with the fields that those of dask have, and some more."""
    startstops = [{"action": "compute", "start": timing.start, "stop": timing.stop}]
    if timing.transfer is not None:
        start, stop = timing.transfer
        startstops.insert(0, {"action": "transfer", "start": start, "stop": stop})
    return {
        **timing.options,
        "key": timing.key,
        "function": timing.function,
        "span": timing.span,
        "worker": timing.address,
        "name": timing.worker,
        "thread": timing.thread,
        "attempt": timing.attempt,
        "status": "error" if timing.is_failed else "OK",
        "type": timing.type,
        "nbytes": timing.nbytes,
        "waited": timing.waited,
        "startstops": startstops,
    }


class TaskRecords(list[dict[str, Any]]):
    """The records of attempts: a list whose display is one line, however many there are."""

    def __repr__(self) -> str:
        spans = [span for one in self for span in one.get("startstops", ())]
        seconds = max((s["stop"] for s in spans), default=0.0)
        seconds -= min((s["start"] for s in spans), default=0.0)
        between = f", {lasting(seconds)}" if spans else ""
        return f"<{counted(len(self), 'record')} of the task stream{between}>"
