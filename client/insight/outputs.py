"""Texts that calls have printed: `Future.output` and `Client.job_output`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ...protocol.errors import QuestionFailed
from ...protocol.errors.commands import CommandFailed, CommandResult
from ...protocol.values.printed import CallOutput
from ...protocol.values.serialize import loads
from ...protocol.wire.answers import part_of, reading
from ...protocol.wire.keys import Key, text_of
from ..modes import on_loop
from ..results.failures import exception_from
from ..shell.engine import Engine
from .asking import pages_of
from .jobs import ask_job, read_failure

if TYPE_CHECKING:
    from ..future import Future

_TIMEOUT_S: Final = 60.0
_NOTHING: Final = (
    'nothing is kept of what {!r} has printed: it was submitted without output="keep", its attempt '
    "was ended before it could report, the scheduler was started again, or others have printed "
    "more since"
)


async def output_of(future: Future[Any, Any]) -> CallOutput:
    """Return what the task of a future has printed, which has ended.

    Raises:
        KeyError: nothing is kept of it.
    """
    key = text_of(future.key)
    found = await _kept(future._engine, key)
    if found is None and future.status == "error":
        found = _of_command(await future._exception(None))
    elif found is None and future.status == "finished":
        found = _of_command(await future._result_async())
    return _checked(found, key)


@on_loop
async def job_output(engine: Engine, key: Key) -> CallOutput:
    """Return what a detached job with `output="keep"` has printed, or a `weft.Command`.

    Of a job that runs again it is that of the attempt before. A row of an array has a key, too.

    Raises:
        KeyError: nothing is kept of it; the text says why that may be.
    """
    found = await _kept(engine, text_of(key))
    if found is None:
        job, answer = await ask_job(engine, key)
        result, failure = answer.blobs
        if job.is_recorded and result is not None:
            found = _of_command(loads(result))
        elif job.is_recorded and failure is not None:
            found = _of_command(exception_from(read_failure(failure), text_of(key)))
    return _checked(found, text_of(key))


async def _kept(engine: Engine, key: str) -> CallOutput | None:
    """Return what the scheduler or its journal keeps; None = nothing."""
    for question in ("output", "job_output"):
        try:
            pages = await pages_of(engine, question, {"key": key}, _TIMEOUT_S)
        except QuestionFailed:  # there is no journal, or an earlier scheduler
            continue
        for page in pages:
            with reading("the scheduler"):
                for stdout, stderr, is_cut in part_of(page, "outputs", list):
                    return CallOutput(stdout, stderr, is_cut)
    return None


def _of_command(value: object) -> CallOutput | None:
    if isinstance(value, CommandFailed):
        value = value.result
    if not isinstance(value, CommandResult):
        return None
    return CallOutput(value.stdout, value.stderr, value.is_cut)


def _checked(found: CallOutput | None, key: str) -> CallOutput:
    if found is None:
        raise KeyError(_NOTHING.format(key))
    return found
