"""A viewer's connection to a scheduler, which reads and changes nothing.

`weft info` asks once; the HTTP process keeps one connection for all of its pages but `/readyz`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Final

from ...protocol.errors import (
    CommClosed,
    CommError,
    NoAnswer,
    ProtocolError,
    UnsupportedRequest,
)
from ...protocol.net.connection import Connection, settle_unknown
from ...protocol.net.deadline import within
from ...protocol.net.transport import connect
from ...protocol.trust.connection_file import ConnectionFile
from ...protocol.trust.security import Security
from ...protocol.wire.answers import Pages, answer_in
from ...protocol.wire.message import Message
from ...protocol.wire.messages import (
    Answer,
    Ask,
    AskFailed,
    Denied,
    GetMetrics,
    Metrics,
    Unsupported,
)
from ...protocol.wire.payload import Blob
from ...protocol.wire.roles import Role
from ...protocol.wording import named_with_user

#: A scheduler that has not answered after this is not healthy.
ANSWER_TIMEOUT_S: Final = 2.0


class Viewer:
    """The connection to the scheduler.

    Args:
        timeout_s: for each page of an answer, unless a question has a time of its own.
    """

    def __init__(self, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        #: Resolved with the reason when the connection has ended.
        self.closed: asyncio.Future[CommError | ProtocolError] = (
            asyncio.get_running_loop().create_future()
        )
        self._connection: Connection | None = None
        self._n_requests = 0
        self._answers: dict[int, asyncio.Future[Message]] = {}
        #: The last request for the counters, which many probes at once share.
        self._metrics: asyncio.Future[Message] | None = None

    async def open(self, address: str, security: Security, timeout_s: float = 10.0) -> None:
        """Connect.

        Raises:
            WeftError: the scheduler cannot be reached, or does not accept this process.
        """
        self._connection = await connect(
            address,
            role=Role.VIEWER,
            server_role=Role.SCHEDULER,
            security=security,
            handler=self,
            timeout_s=timeout_s,
        )

    async def metrics(self) -> dict[str, Any]:
        """Return the scheduler's counters. Calls at the same time share one request.

        Raises:
            TimeoutError: it did not answer in time.
            UnsupportedRequest: it runs a version of weft that does not know this question.
            WeftError: the connection is gone.
        """
        if self._metrics is None or self._metrics.done():
            self._metrics = self._send(GetMetrics(request=self._next_request()))
        answer = await self._wait(self._metrics, self._timeout_s)
        assert isinstance(answer, Metrics)
        return answer.values

    async def ask(
        self,
        name: str,
        arguments: dict[str, Any] | None = None,
        timeout_s: float | None = None,
        *,
        to: str = "",
        process: str = "",
        visit: str = "",
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the pages of the answer to a question.

        Args:
            name: of the question.
            arguments: of the question, plain data.
            timeout_s: for each page; None = that of this viewer.
            to: the id of the worker or supervisor that is asked; "" = the scheduler.
            process: its name, for errors.
            visit: the pass of a visitor with whose rights it is asked; "" = with those of the
                token.

        Raises:
            TimeoutError: no page came in time; a `NoAnswer` if the process was to answer it.
            QuestionFailed: it does not know the question, an argument is not valid, or its answer
                has no end.
            NotPermitted: the token does not permit this question.
            WeftError: the connection is gone.
        """
        pages = Pages(process)
        is_left = True
        while is_left:
            answer = await self._ask(name, arguments, pages.page, timeout_s, to, process, visit)
            yield answer.info
            is_left = pages.turn(answer)

    async def ask_all(
        self,
        name: str,
        arguments: dict[str, Any] | None = None,
        timeout_s: float | None = None,
        *,
        to: str = "",
        process: str = "",
        visit: str = "",
    ) -> dict[str, Any]:
        """Return the whole answer to a question: its pages, with their lists and dicts joined.

        Raises:
            TimeoutError, WeftError: see `ask`.
        """
        whole: dict[str, Any] = {}
        async for page in self.ask(name, arguments, timeout_s, to=to, process=process, visit=visit):
            for part, content in page.items():
                before = whole.get(part)
                if isinstance(before, dict) and isinstance(content, dict):
                    before |= content
                elif isinstance(before, list) and isinstance(content, list):
                    before += content
                else:
                    whole[part] = content
        return whole

    async def ask_blobs(
        self, name: str, arguments: dict[str, Any], *, visit: str = ""
    ) -> tuple[dict[str, Any], list[Blob | None]]:
        """Return the only page of the scheduler's answer to a question, and its blobs.

        Raises:
            TimeoutError, WeftError: see `ask`.
        """
        answer = await self._ask(name, arguments, "", visit=visit)
        return answer.info, answer.blobs

    async def ask_page(self, name: str, page: str) -> tuple[dict[str, Any], str]:
        """Return one page of the scheduler's answer to a question, and the name of the next one.

        Raises:
            TimeoutError, WeftError: see `ask`.
        """
        answer = await self._ask(name, None, page)
        return answer.info, answer.next_page

    async def _ask(
        self,
        name: str,
        arguments: dict[str, Any] | None,
        page: str,
        timeout_s: float | None = None,
        to: str = "",
        process: str = "",
        visit: str = "",
    ) -> Answer:
        request = self._next_request()
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        question = Ask(
            request=request, name=name, arguments=arguments or {}, page=page, to=to, visit=visit
        )
        try:
            message = await self._wait(self._send(question), timeout_s)
        except TimeoutError:
            self._answers.pop(request, None)
            if not to:
                raise
            raise NoAnswer(f"it did not answer within {timeout_s:g} s", process) from None
        answer = answer_in(message, name, process)
        assert answer is not None, message
        return answer

    def _next_request(self) -> int:
        self._n_requests += 1
        return self._n_requests

    def _send(self, question: GetMetrics | Ask) -> asyncio.Future[Message]:
        if self.closed.done():
            raise self.closed.result()
        assert self._connection is not None, "ask after open"
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._answers[question.request] = future
        self._connection.send([question])
        return future

    async def _wait(self, future: asyncio.Future[Message], timeout_s: float) -> Message:
        try:
            return await within(timeout_s, asyncio.shield(future))
        except TimeoutError:
            raise TimeoutError("the scheduler does not answer") from None

    def on_messages(self, connection: Connection, messages: list[Message]) -> None:
        """See `Handler`."""
        for message in settle_unknown(connection, messages):
            if isinstance(message, (Metrics, Answer, AskFailed, Denied, Unsupported)):
                future = self._answers.pop(message.request, None)
                if future is None:
                    continue
                if isinstance(message, Unsupported):
                    future.set_exception(UnsupportedRequest("this question", "the scheduler"))
                    future.exception()  # the caller may have stopped waiting
                else:
                    future.set_result(message)

    def on_writable(self, connection: Connection) -> None:
        """See `Handler`; questions are small."""

    def on_closed(self, connection: Connection, error: CommError | ProtocolError | None) -> None:
        """See `Handler`."""
        self._connection = None
        reason = error or CommClosed()
        if not self.closed.done():
            self.closed.set_result(reason)
        for future in self._answers.values():
            future.set_exception(reason)
            future.exception()  # the caller may have stopped waiting
        self._answers.clear()

    async def wait_closed(self) -> None:
        """Wait until the connection is gone."""
        await asyncio.shield(self.closed)

    def close(self) -> None:
        """Close the connection at once: a viewer has sent nothing that must still arrive.

        An orderly end of TLS takes a round trip, and a command may end before.
        """
        if self._connection is not None:
            self._connection.abort()

    async def leave(self) -> None:
        """Close the connection, and wait until its socket is closed, for a loop that ends next.

        The end of TLS takes an answer of the scheduler; a connection does not wait long for it.
        """
        if self._connection is not None:
            self._connection.close()
            await self.wait_closed()


@contextlib.asynccontextmanager
async def viewing(found: ConnectionFile, timeout_s: float) -> AsyncIterator[Viewer]:
    """Connect as a viewer to the scheduler of a connection file, and leave it with the block.

    Args:
        found: the file.
        timeout_s: for the connection, and for each page of an answer.

    Raises:
        WeftError: see `Viewer.open`.
    """
    viewer = Viewer(timeout_s)
    await viewer.open(found.addresses[0], found.to_security(), timeout_s)
    try:
        yield viewer
    finally:
        await viewer.leave()


async def describe_cluster(viewer: Viewer) -> dict[str, Any]:
    """Return the description of a cluster with its workers and clients.

    Raises:
        TimeoutError, WeftError: see `Viewer.ask`.
    """
    info = await viewer.ask_all("cluster")
    workers = await viewer.ask_all("workers")
    clients = (await viewer.ask_all("clients"))["clients"]
    return {**info, **workers, "clients": [named_with_user(client) for client in clients]}


async def ask_task(viewer: Viewer, key: str) -> dict[str, Any]:
    """Return the description of a task, with its story.

    Raises:
        QuestionFailed: the scheduler does not know it.
    """
    from ...client.insight.explaining import unknown_task

    arguments = {"keys": [key]}
    tasks = (await viewer.ask_all("tasks", arguments))["tasks"]
    events = (await viewer.ask_all("story", arguments))["story"]
    story = [[age_s, what] for age_s, _, what in events]
    if tasks:
        return {**tasks[0], "story": story}
    if not story:
        raise unknown_task(key)
    return {"key": key, "state": "forgotten", "why": "no client needs it any more", "story": story}


async def check_acceptance(address: str, security: Security) -> None:
    """Return if a scheduler accepts a connection and answers on it: connect, ask, and leave.

    Raises:
        ConnectTimeout, TimeoutError: it did not in time.
        WeftError: the scheduler cannot be reached, or does not accept this process.
    """
    viewer = Viewer()
    try:
        await viewer.open(address, security, ANSWER_TIMEOUT_S)
        await viewer.metrics()
    finally:
        viewer.close()
