"""`explain`: why a task is where it is, and where its time went.

The scheduler explains (`scheduler/core/insight/explaining.py`); the worker adds the line that a
task has reached; and what only the client knows is added here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from ...protocol.errors import QuestionFailed, WeftError
from ...protocol.wire.answers import part_of, reading
from ...protocol.wire.keys import Key, key_of
from ...protocol.wording import lasting
from ..core.tasks import FutureState
from ..modes import on_loop
from ..results.failures import exception_from, exception_of
from ..shell.engine import Engine
from .asking import ask
from .inspecting import TIMEOUT_S, keys_of
from .jobs import ask_job, read_failure

#: Frames of a running task that are shown.
_N_FRAMES: Final = 4


@dataclass(frozen=True, repr=False)
class Explanation:
    """The reasons why a task is where it is. Printed, it is a text of a few lines.

    Attributes:
        key: of the task.
        state: at the scheduler: "waiting" (for inputs), "queued", "no_worker", "processing" (at a
            worker), "memory" (finished), "erred", "released"; or "unknown" there. Of a detached job
            that it does not hold any more: "done", "failed", "cancelled" or "lost".
        reason: in one sentence.
        steps: `(key, state, reason)` of the task, of the first one that it waits for, and so on.
        details: further facts about the last step: places in queues, and what each worker lacks.
        times: `{part: seconds}`, where its time went.
        stack: the innermost frames of the last step, if it runs now, outermost first.
    """

    key: Key
    state: str
    reason: str
    steps: list[tuple[Key, str, str]] = field(default_factory=list)
    details: list[str] = field(default_factory=list)
    times: dict[str, float] = field(default_factory=dict)
    stack: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"task {self.key} {_VERBS.get(self.state, f'is {self.state}')}: {self.reason}"]
        lines += [f"  {key} {_VERBS.get(s, f'is {s}')}: {why}" for key, s, why in self.steps[1:]]
        lines += [f"    {line}" for line in self.details]
        if self.stack:
            lines.append("  it is now at")
            lines += [f"    {line}" for frame in self.stack for line in frame.split("\n")]
        if self.times:
            lines.append("  times")
            lines += [f"    {_seconds(s):>9}  {name}" for name, s in self.times.items()]
        return "\n".join(lines)

    __repr__ = __str__


_VERBS: Final = {
    "waiting": "is waiting for inputs",
    "no_worker": "is set aside",
    "processing": "is at a worker",
    "memory": "is finished",
    "erred": "has failed",
    "failed": "has failed",
    "cancelled": "was cancelled",
    "lost": "was lost",
}


def _seconds(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3f} s"


@on_loop
async def explain(engine: Engine, task: Any) -> Explanation:
    """Explain why a task does not run or is not done, and where its time went.

    Of a detached job that the scheduler does not hold any more, the journal has how it has ended.

    Args:
        task: a future, or the key of any task of the cluster.

    Returns:
        An `Explanation`; printed, it is a text.

    Raises:
        QuestionFailed: no process knows this key.
        ForeignFuture: the future is of another client.
    """
    keys = keys_of(engine, task, "explain")
    if len(keys) != 1:
        raise TypeError(f"explain takes one future or key, not {len(keys)}")
    (key,) = keys
    state = engine.table.states.get(key)
    if not engine.core.is_linked and engine.core.end is None:
        text = "this client has no connection to the scheduler; it looks for it"
        return Explanation(key_of(key), "unknown", text)
    async for page in ask(engine, "explanations", {"keys": [key]}):
        with reading("the scheduler"):
            for one in part_of(page, "explanations", list):
                found = read(one)
                return await _with_stack(engine, found, one.get("running_at") or [])
    if state is not None:
        return Explanation(key_of(key), "unknown", _known_here(state))
    ended = await _recorded(engine, key)
    if ended is None:
        raise unknown_task(key)
    return ended


async def _recorded(engine: Engine, key: str) -> Explanation | None:
    """Explain a task by the record of a detached job; None = there is none."""
    try:
        job, answer = await ask_job(engine, key_of(key))
    except (KeyError, QuestionFailed):  # such as a scheduler without a journal
        return None
    if job.ended is None:
        return Explanation(job.key, job.state, f"it is a part of {job.array or 'a detached job'}")
    ran_s = (job.ended - job.submitted).total_seconds()
    when = f"its end was recorded at {job.ended:%Y-%m-%d %H:%M:%S}"
    text = f"it is a detached job, and {when}, {lasting(ran_s)} after it was submitted"
    if job.state == "done":
        how = "is recorded" if job.is_recorded else "is not recorded"
        text += f"; its result ({job.nbytes} bytes) {how}"
    elif len(answer.blobs) > 1 and answer.blobs[1] is not None:
        text += f"; {_in_words(read_failure(answer.blobs[1]), key)}"
    details = [f"it was submitted by {job.client} at {job.submitted:%Y-%m-%d %H:%M:%S}"]
    return Explanation(job.key, job.state, text, [(job.key, job.state, text)], details)


def _in_words(failure: list[Any], key: str) -> str:
    """Return a failure in one line. An exception is not unpickled: its module may not be here."""
    if failure[0] == "exception" and len(failure) > 4:
        return f"{failure[3]}: {failure[4]}"
    error = exception_from(failure, key)
    return f"{type(error).__name__}: {error}"


def unknown_task(key: str) -> QuestionFailed:
    """Return the error of a key that no process knows."""
    return QuestionFailed(
        f"the scheduler knows no task {key!r}: no client holds a future of it, or it was never "
        "submitted; future.key is the whole name"
    )


def read(info: dict[str, Any]) -> Explanation:
    """Return the explanation in an answer of the scheduler."""
    steps = [(key_of(key), state, why) for key, state, why in info["steps"]]
    key, state, reason = steps[0]
    return Explanation(key, state, reason, steps, list(info["details"]), dict(info["times"]))


def describe_last_step(found: Explanation, subject: str) -> str:
    """Return, in a sentence of `subject`, the reason of the task that all the others wait for."""
    key, state, reason = found.steps[-1]
    words = f"{_VERBS.get(state, f'is {state}')}: {reason}"
    return (
        f"{subject} waits for {key!r}, which {words}" if found.steps[1:] else f"{subject} {words}"
    )


def _known_here(state: FutureState) -> str:
    """Return what this client knows of a task that the scheduler does not know (any more)."""
    if state.failure is not None:
        error = exception_of(state)
        return f"{type(error).__name__}: {error}"
    if state.has_data:
        return "it has finished, and its result is in this process"
    return "its submission is on its way to the scheduler"


async def _with_stack(engine: Engine, found: Explanation, place: list[str]) -> Explanation:
    """Add the line that the last step has reached, if it runs and its worker answers."""
    if len(place) != 2:
        return found
    worker_id, name = place
    last = found.steps[-1][0]
    process = f"worker {name}"
    is_there = False
    try:
        async for page in ask(engine, "call_stack", {}, TIMEOUT_S, to=worker_id, process=process):
            with reading(process):
                for key, frames in part_of(page, "stacks", list):
                    if key_of(key) == last:
                        is_there = True
                        found.stack.extend(frames[-_N_FRAMES:])
                for key, ran_s, limit_s in page.get("timeouts", ()):
                    if key_of(key) == last:
                        text = f"it has run for {_seconds(ran_s)} of at most {_seconds(limit_s)}"
                        found.details.append(text)
    except WeftError as error:
        found.details.append(f"its worker was asked where it is: {error}")
    else:
        if not is_there:
            found.details.append(f"it does not run on {name} now: it has not begun, or has ended")
    return found
