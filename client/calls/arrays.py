"""`Client.submit_array`: a detached call for each number of a range, as one job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ...protocol.array_rows import ArrayRows
from ...protocol.values.array_calls import ArrayFunction
from ..future import Future
from .annotations import AnnotatedOptions, conditions_of_keywords, options_of_keywords
from .call_options import NOT_GIVEN, printing
from .calling import submit_call
from .conditions import NO_CONDITIONS, check_futures, keep
from .detaching import accepted

if TYPE_CHECKING:
    from ...protocol.wire.keys import Key
    from ..client import Client
    from ..modes import Mode
    from .retries import Retries


def submit_array(
    client: Client[Mode],
    func: Callable[[int], Any],
    numbers: range,
    /,
    *,
    key: Key | None = None,
    workers: str | Iterable[str] | None = None,
    resources: Mapping[str, float] | None = None,
    retries: int | Retries | None = None,
    priority: int = 0,
    allow_other_workers: bool = False,
    timeout: Any = NOT_GIVEN,
    meta: Any = NOT_GIVEN,
    after: Any = NOT_GIVEN,
    start_at: Any = NOT_GIVEN,
    start_after: Any = NOT_GIVEN,
    deadline: Any = NOT_GIVEN,
    no_worker_timeout: Any = NOT_GIVEN,
    cores: Any = NOT_GIVEN,
    memory: Any = NOT_GIVEN,
    queue: Any = NOT_GIVEN,
    output: Any = NOT_GIVEN,
) -> Future[None, Mode]:
    """Run `func(number)` for each number of a range, as one detached job: an array.

    The scheduler has the range, not a record for each call, so millions of them take little memory
    there, and none here. Each is a *row* with the key `f"{key}/{number}"` of its own:
    `client.job_result` gives its result, `cancel_job` and `retry_job` take it. See docs/jobs.md.

    Args:
        func: the function to run; it gets the number alone.
        numbers: the range, at most 10 million numbers, none below 0.
        key: the key of the array; see `submit`, as for all that follow.
        workers: where the rows may run.
        resources: what each row takes.
        retries: how often a row runs again that raises.
        priority: from -9999 to 9999.
        allow_other_workers: prefer `workers`, but use others if these cannot run it.
        timeout: how long an attempt of a row may run.
        meta: plain data that says what the rows are for.
        after: others that are to have ended before the first row begins.
        start_at: when the first row may begin.
        start_after: ... in how long.
        deadline: the array is cancelled if it has not ended by then.
        no_worker_timeout: a row fails that no connected worker could run for so long.
        cores: the threads of its worker that each row takes, 1 by default.
        memory: the bytes of its worker's limit that each row takes.
        queue: the name of its queue: no row begins while that is paused.
        output: where what each row prints goes; see `client.job_output`.

    Returns:
        A future without a value: it is done when all rows are, and has failed with `RowsFailed`
        when all have ended and some have not succeeded.

    Raises:
        ValueError: the range is empty, too long, or has numbers below 0.
        SerializationError: the function cannot be pickled; the text names what in it.
        JobNotRecorded: the scheduler has no journal.

    Example:
        >>> array = client.submit_array(simulate, range(1_000_000))
        >>> client.job_result(f"{array.key}/12")
    """
    if type(numbers) is not range:
        raise TypeError(f"submit_array needs a range, not {type(numbers).__name__}")
    if not numbers or min(numbers[0], numbers[-1]) < 0:
        raise ValueError(f"{numbers} has {'numbers below 0' if numbers else 'no numbers'}")
    given = {
        "key": key,
        "workers": workers,
        "resources": resources,
        "retries": retries,
        "priority": priority,
        "allow_other_workers": allow_other_workers,
        "timeout": timeout,
        "meta": meta,
        "conditions": {
            "after": after,
            "start_at": start_at,
            "start_after": start_after,
            "deadline": deadline,
            "no_worker_timeout": no_worker_timeout,
            "cores": cores,
            "memory": memory,
            "queue": queue,
        },
    }
    if output is not NOT_GIVEN:
        func = printing(func, {}, output)
    ordered = numbers if numbers.step > 0 else numbers[::-1]
    return submit_parts(client, func, [(ordered, 0)], **given)


def submit_parts(
    client: Client[Mode],
    func: Callable[..., Any],
    parts: Sequence[tuple[range, int]],
    *,
    key: Key | None,
    workers: str | Iterable[str] | None,
    resources: Mapping[str, float] | None,
    retries: int | Retries | None,
    priority: int,
    allow_other_workers: bool,
    timeout: Any,
    meta: Any,
    conditions: Mapping[str, Any],
) -> Future[None, Mode]:
    """Submit an array of ranges, each with the digits of its numbers as `ArrayRows` has them."""
    engine = client._running()
    if not callable(func):
        raise TypeError(f"submit_array needs a function, not {type(func).__name__}")
    rows = [[part.start, part.stop, part.step, width] for part, width in parts]
    ArrayRows(rows)
    keywords: dict[str, Any] = {}
    values = tuple(conditions.get(name, NOT_GIVEN) for name in NO_CONDITIONS)
    found = {**conditions_of_keywords(func, keywords, values), "detached": True}
    options = options_of_keywords(
        func,
        keywords,
        timeout,
        meta,
        priority,
        retries,
        workers,
        allow_other_workers,
        resources,
        found,
    )
    function = ArrayFunction(partial(func, **keywords) if keywords else func)
    if isinstance(options, AnnotatedOptions):
        options = options.of("" if key is None else str(key))
    check_futures(engine, found)
    future = submit_call(
        engine,
        client._encoder,
        function,
        (),
        {},
        key,
        options.changed(array=rows),
        pure=False,
        inline=True,
    )
    return accepted(client, keep(engine, [future], found), found)[0]
