"""Answers questions that the scheduler passes on to this worker: what it holds and runs, its log.

Requests about plugins are given to `plugins`.

A part of the shell. A question is answered on a thread of its own, so that neither the event loop
nor a slot waits for it: reading source lines and versions takes milliseconds, and `run` calls the
user's function. The answer leaves on the connection on which the question came, or not at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import inspect
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any, Final, NamedTuple, TypeAlias

from ..protocol.errors import LocalProtocolError
from ..protocol.host.condition import process_condition
from ..protocol.host.log_ring import page_of_latest
from ..protocol.host.versions import versions_for
from ..protocol.net.connection import Connection
from ..protocol.values.exceptions import name_packed, pack_exception
from ..protocol.values.serialize import loads
from ..protocol.wire.message import Message
from ..protocol.wire.messages import Answer, Ask, AskFailed, SetUpPlugin, TearDownPlugin
from ..protocol.wire.messages.questions import BAD_ARGUMENT, NO_ANSWER, UNKNOWN_QUESTION
from ..protocol.wire.payload import Blob
from .actors.actor_thread import OWN_CODE as ACTOR_CODE
from .context import set_worker
from .core.tasks import MEMORY, WorkerTask
from .data.packing import pack_result
from .measuring.stack_sampling import MAX_KEEP_S, StackSampler
from .plugins.plugins import WorkerPlugins
from .reaching import MAX_ADDRESSES, TIMEOUT_S
from .slots.executor import OWN_CODE, TaskExecutor

logger = logging.getLogger("weft.worker")

#: Keys in one page: the scheduler passes it on in about 1 ms.
N_KEPT: Final = 1400
#: Rows of all lists of results that are kept between two pages, 8 bytes each, beside the
#: latest list; and for how long one is kept without a question.
_MAX_ROWS: Final = 8_000_000
_KEEP_S: Final = 60.0
#: Characters of a line of code, and of an error.
_MAX_CHARS: Final = 1000
#: Innermost frames of one task that are shown.
_MAX_FRAMES: Final = 100

_Found: TypeAlias = "tuple[dict[str, Any], str, list[Blob | None]]"
_Reach: TypeAlias = Callable[[list[str]], Coroutine[Any, Any, dict[str, list[str]]]]


class _List(NamedTuple):
    """The records that were kept when the first page was asked for."""

    records: list[WorkerTask]
    used: float


class Answering:
    """The questions to one worker. `on_ask` and `close` are for the loop's thread."""

    def __init__(
        self,
        executor: TaskExecutor,
        end: Callable[[str], object] = lambda reason: None,
        reach: _Reach | None = None,
    ) -> None:
        """Prepare.

        Args:
            executor: of this worker.
            end: called with the reason why the worker must end.
            reach: see `Peers.reach`; called in the loop. None = questions about it fail.
        """
        self._executor = executor
        self._reach = reach
        self.plugins = WorkerPlugins(executor, end)
        others = None if executor.samples is None else executor.samples.read
        self._sampler = StackSampler(self._sampled, OWN_CODE | ACTOR_CODE, others)
        self._loop = asyncio.get_running_loop()
        self._threads: set[threading.Thread] = set()
        #: {number: what was kept}; any of the threads changes it, under the lock.
        self._lists: dict[int, _List] = {}
        self._lock = threading.Lock()
        self._n_lists = 0
        self._forgetting: asyncio.TimerHandle | None = None
        self._is_closed = False

    def on_ask(self, connection: Connection, question: Ask | SetUpPlugin | TearDownPlugin) -> None:
        """Answer a question, on a thread of its own."""
        if not isinstance(question, Ask):
            self.plugins.on_message(connection, question)
            return
        answer = _QUESTIONS.get(question.name)
        if answer is None:
            text = f"there is no question {question.name[:100]!r} to a worker"
            self._send(connection, _failed(question, UNKNOWN_QUESTION, text))
            return
        is_awaited = question.arguments.get("wait") is not False
        if not is_awaited:
            self._send(connection, Answer(request=question.request, info={}))
        thread = threading.Thread(
            target=self._answer,
            args=(connection if is_awaited else None, question, answer),
            name=f"weft-question-{question.name}",
            daemon=True,
        )
        self._threads.add(thread)
        thread.start()

    def close(self) -> None:
        """Send no more answers, forget what was kept for next pages, and tear plugins down."""
        self.plugins.close()
        self._sampler.close()
        self._is_closed = True
        if self._forgetting is not None:
            self._forgetting.cancel()
        with self._lock:
            self._lists.clear()

    def join(self) -> bool:
        """Return whether all threads have ended. Functions that `run` has started may go on."""
        is_still = self._sampler.join() and self.plugins.join()
        return is_still and not any(thread.is_alive() for thread in self._threads)

    # --- On the thread of a question --------------------------------------------------------------

    def _answer(self, connection: Connection | None, question: Ask, answer: _Answer) -> None:
        message: Message
        try:
            info, next_page, blobs = answer(self, question)
        except ValueError as error:
            message = _failed(question, BAD_ARGUMENT, str(error))
        except Exception as error:
            logger.exception(
                "the question %r could not be answered",
                question.name,
                extra={"code": "question-failed"},
            )
            message = _failed(question, NO_ANSWER, f"{type(error).__name__}: {error}")
        else:
            message = Answer(request=question.request, info=info, next_page=next_page, blobs=blobs)
        with contextlib.suppress(RuntimeError):  # the loop is closed: the worker has ended
            self._loop.call_soon_threadsafe(self._finish, connection, message)

    def kept(self, question: Ask) -> _Found:
        """Return the keys whose results are here, with their sizes."""
        number, start = _numbers(question.page)
        with self._lock:
            if not question.page:
                self._n_lists = number = self._n_lists + 1
                self._lists[number] = _List(self._executor.records(), time.monotonic())
                self._drop_lists()
            kept = self._lists.pop(number, None)
            if kept is None:
                raise ValueError("its next page was asked for too late; ask again")
            end = start + N_KEPT
            rows = [record for record in kept.records[start:end] if record.state == MEMORY]
            is_last = end >= len(kept.records)
            if not is_last and not self._is_closed:
                self._lists[number] = kept._replace(used=time.monotonic())
        info = {
            "keys": [record.key for record in rows],
            "nbytes": [record.nbytes for record in rows],
        }
        return info, "" if is_last else f"{number}.{end}", []

    def _drop_lists(self) -> None:
        """Forget the lists beyond the limit for which no page was asked for longest."""
        n_rows = sum(len(kept.records) for kept in self._lists.values())
        for number in list(self._lists)[:-1]:
            if n_rows <= _MAX_ROWS:
                break
            n_rows -= len(self._lists.pop(number).records)

    def call_stack(self, question: Ask) -> _Found:
        """Return the frames of the tasks that run now, outermost first, by key.

        And `[key, seconds, limit]` of those that have a time limit and were seen to run.
        """
        frames = sys._current_frames()
        stacks = []
        for key, thread in self._executor.running():
            frame = frames.get(thread)
            if frame is not None:
                stacks.append([key, _frames_of_task(frame)])
        return {"stacks": stacks, "timeouts": self._executor.interrupts.watch.time_limits()}, "", []

    def _sampled(self) -> list[tuple[str, int]]:
        """Return the key and the thread of each task and actor that computes in this process."""
        executor, actors = self._executor, self._executor.context.actors
        tasks = executor.running() if executor.samples is None else []
        return tasks + (actors.running() if actors is not None else [])

    def profile(self, question: Ask) -> _Found:
        """Return what was sampled of the tasks' stacks, and let sampling begin or go on."""
        keep_s = question.arguments.get("keep_s")
        if type(keep_s) is not float or not 0 <= keep_s <= MAX_KEEP_S:
            raise ValueError(f"keep_s= is a number of seconds from 0 to {MAX_KEEP_S:g}")
        return self._sampler.read(keep_s).to_info(), "", []

    def logs(self, question: Ask) -> _Found:
        """Return the latest log records of this process."""
        info, next_page = page_of_latest(question.arguments, question.page)
        return info, next_page, []

    def versions(self, question: Ask) -> _Found:
        """Return the versions of Python and of packages in this process."""
        return versions_for(question.arguments), "", []

    def process(self, question: Ask) -> _Found:
        """Return the clock, limits and memory of this process and its machine."""
        return process_condition(), "", []

    def reach(self, question: Ask) -> _Found:
        """Try to connect to the data ports of other workers; return those out of reach."""
        addresses = question.arguments.get("addresses")
        if (
            type(addresses) is not list
            or not set(map(type, addresses)) <= {str}
            or len(addresses) > MAX_ADDRESSES
        ):
            raise ValueError(f"addresses= is a list of at most {MAX_ADDRESSES} addresses")
        if self._reach is None:
            raise ValueError("this worker fetches nothing")
        trying = asyncio.run_coroutine_threadsafe(self._reach(addresses), self._loop)
        return {"unreached": trying.result(2 * TIMEOUT_S)}, "", []

    def run(self, question: Ask) -> _Found:
        """Call a function; return its result, or its exception."""
        if len(question.blobs) != 1 or question.blobs[0] is None:
            raise ValueError("one pickle of a function and its arguments is expected")
        context = copy.copy(self._executor.context)
        set_worker(context)
        name = f"client.run of {question.arguments.get('name')}"
        try:
            function, args, kwargs = loads(question.blobs[0])
            if _lacks_worker(function, args, kwargs):
                kwargs["dask_worker"] = context
            result = function(*args, **kwargs)
            if inspect.iscoroutine(result):
                result = asyncio.run(result)
            return {}, "", [pack_result(result, name)]
        except BaseException as error:  # of user code: SystemExit ends the call only
            packed = pack_exception(error, name, context.name)
            note = f"weft: {name} on worker {context.name}"
            return {"failure": name_packed(packed, name, note)}, "", []

    # --- On the loop's thread again ---------------------------------------------------------------

    def _finish(self, connection: Connection | None, message: Message) -> None:
        self._threads = {thread for thread in self._threads if thread.is_alive()}
        if connection is not None:
            self._send(connection, message)
        if self._lists and self._forgetting is None and not self._is_closed:
            self._forgetting = self._loop.call_later(_KEEP_S, self._forget_lists)

    def _forget_lists(self) -> None:
        self._forgetting = None
        limit = time.monotonic() - _KEEP_S
        with self._lock:
            self._lists = {n: kept for n, kept in self._lists.items() if kept.used > limit}
            is_left = bool(self._lists)
        if is_left:
            self._forgetting = self._loop.call_later(_KEEP_S, self._forget_lists)

    def _send(self, connection: Connection, message: Message) -> None:
        if self._is_closed:
            return
        try:
            connection.send([message])
        except LocalProtocolError as error:
            assert isinstance(message, Answer)
            text = f"its answer cannot be sent: {error.text}"
            connection.send([AskFailed(request=message.request, kind=NO_ANSWER, text=text)])


_Answer: TypeAlias = Callable[[Answering, Ask], _Found]

#: {name: question}; `scheduler/core/insight/forwarded_questions.py` has the level of token that
#: each needs.
_QUESTIONS: Final[dict[str, _Answer]] = {
    "held": Answering.kept,
    "call_stack": Answering.call_stack,
    "profile": Answering.profile,
    "logs": Answering.logs,
    "versions": Answering.versions,
    "process": Answering.process,
    "reach": Answering.reach,
    "run": Answering.run,
}


def _failed(question: Ask, kind: str, text: str) -> AskFailed:
    return AskFailed(request=question.request, kind=kind, text=text[:_MAX_CHARS])


def _numbers(page: str) -> tuple[int, int]:
    number, _, start = page.partition(".")
    if not page:
        return 0, 0
    if not (number.isascii() and number.isdigit() and start.isascii() and start.isdigit()):
        raise ValueError(f"there is no page {page[:40]!r}")
    return int(number[:18]), int(start[:18])


def _frames_of_task(innermost: FrameType) -> list[str]:
    """Return the frames of the user's code that a slot's thread is in, outermost first."""
    frames: list[tuple[FrameType, int]] = []
    for frame, line in traceback.walk_stack(innermost):
        if frame.f_code in OWN_CODE:
            break
        frames.append((frame, line))
    frames.reverse()
    summary = traceback.StackSummary.extract(iter(frames[-_MAX_FRAMES:]))
    shown = []
    for one in summary:
        text = f'File "{one.filename}", line {one.lineno}, in {one.name}'
        text = text[:_MAX_CHARS]
        shown.append(f"{text}\n\t{one.line[:_MAX_CHARS]}" if one.line else text)
    return shown


def _lacks_worker(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether a function has a parameter `dask_worker`, as for dask, that is not given."""
    try:
        signature = inspect.signature(function)
        given = signature.bind_partial(*args, **kwargs).arguments
    except (TypeError, ValueError):  # it has none, or the call is wrong, and will say so
        return False
    return "dask_worker" in signature.parameters and "dask_worker" not in given
