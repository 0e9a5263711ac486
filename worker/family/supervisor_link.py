"""The supervisor's session with the scheduler: reports which workers live and why others died.

Reports of exits are kept until there is a session, because the cause of a worker's death often
interrupts the network as well.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from ...protocol.death_facts import DeathFacts
from ...protocol.errors import CommError, ConnectTimeout, WeftError
from ...protocol.host.facts import process_facts
from ...protocol.host.log_ring import page_of_latest
from ...protocol.net.connection import Connection
from ...protocol.net.session import Finder, SessionOwner, SessionRunner
from ...protocol.reported import with_metrics_url
from ...protocol.wire.message import Message
from ...protocol.wire.messages import (
    Answer,
    Ask,
    AskFailed,
    EndWorkers,
    PluginsKept,
    RegisterSupervisor,
    RenewWorkers,
    SetUpOnSupervisor,
    Stop,
    TearDownOnSupervisor,
    Welcome,
    WorkerExited,
    WorkerHeldUp,
    WorkersAlive,
    WorkersRetired,
)
from ...protocol.wire.messages.questions import BAD_ARGUMENT, UNKNOWN_QUESTION
from ...protocol.wire.roles import Role
from ...protocol.wire.session import GiveUp, Outage, Policy, Session
from .exit_reports import ExitReports
from .hosting import Order

_log: Final = logging.getLogger("weft.supervisor")

_ORDERS: Final = (SetUpOnSupervisor, TearDownOnSupervisor, RenewWorkers, PluginsKept)
_LEAVE_TIMEOUT_S: Final = 2.0


@dataclass(slots=True, kw_only=True)
class SupervisorPolicy(Policy):
    """Retry at first only if no scheduler answers, later always; never if embedded."""

    first_delay_s: float = 0.05
    most_delay_s: float = 10.0
    soon_s: float = 30.0
    #: Two heartbeats per interval: workers are reported alive in time even if one is late.
    beats: int = 2
    least_beat_s: float = 0.02
    is_embedded: bool = False

    def is_final(self, error: WeftError, outage: Outage, now: float) -> bool:
        """See `Policy`."""
        return self.is_embedded or (outage.error is None and not isinstance(error, CommError))


class SupervisorLink(SessionOwner):
    """The owner of the supervisor's session. For the loop's thread only."""

    def __init__(
        self,
        supervisor_id: str,
        find: Finder,
        policy: SupervisorPolicy,
        *,
        measure: Callable[[], tuple[dict[str, int], list[int]]],
        held_up: Callable[[], list[WorkerHeldUp]],
        metrics_url: str = "",
        on_stop: Callable[[str], None],
        on_scale: Callable[[int | None], list[str]],
        on_retired: Callable[[list[str]], None],
        on_end: Callable[[list[str], str], None],
        on_plugin: Callable[[Connection, Order], None],
        on_over: Callable[[GiveUp], None],
    ) -> None:
        """Prepare; `start` makes the first attempt.

        Args:
            supervisor_id: identifies this process in all of its sessions.
            find: returns the scheduler's address and secret; called at each attempt.
            policy: decides how long to try.
            measure: returns {worker id: resident bytes} of the workers that are alive, and what
                `reported.OF_SUPERVISORS` declares.
            held_up: returns reports about the workers whose loops do not run.
            metrics_url: of the page of this family, "" = it has none.
            on_stop: called with the reason when the scheduler sends `Stop`.
            on_scale: called with the number of workers that the family is to have; returns their
                names.
            on_retired: called with the ids of workers that the scheduler lets leave.
            on_end: called with the ids of workers whose processes are to be replaced, and why.
            on_plugin: called with the scheduler's orders about plugins, and their connection.
            on_over: called when no further attempt is made.
        """
        self._supervisor_id = supervisor_id
        self._policy = policy
        self._measure = measure
        self._held_up = held_up
        self._metrics_url = metrics_url
        self._on_stop = on_stop
        self._on_scale = on_scale
        self._on_retired = on_retired
        self._on_end = on_end
        self._on_plugin = on_plugin
        self._on_over = on_over
        self._reports = ExitReports()
        self._loop = asyncio.get_running_loop()
        self._runner = SessionRunner(
            Session(policy, random.random), self, find, role=Role.SUPERVISOR
        )
        # One line is logged for the whole family; the workers log nothing about it. The owner of
        # an embedded scheduler reports the loss itself.
        self._level = logging.INFO if policy.is_embedded else logging.WARNING
        #: Done with the first session.
        self.opened: asyncio.Future[None] = self._loop.create_future()
        #: Done when no further attempt is made.
        self.over = self._runner.over

    @property
    def connected(self) -> bool:
        """True while there is a session."""
        return self._runner.connection is not None

    @property
    def address(self) -> str:
        """The address of the last connection to the scheduler, "" before the first one."""
        return self._runner.address

    def start(self) -> None:
        """Make the first attempt."""
        self._runner.start()

    async def first(self, stopped: asyncio.Future[str]) -> None:
        """Wait for the first session, or until the order to stop.

        Raises:
            WeftError: there will be none; its text explains what the user can do.
        """
        futures: list[asyncio.Future[Any]] = [self.opened, self.over, stopped]
        await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
        end = self.over.result() if self.over.done() else None
        if end is None or self.opened.done() or stopped.done():
            return
        error = end.error
        if isinstance(error, CommError):
            text = f"no scheduler answered within {self._policy.first_s:g} s: {error.text}"
            raise ConnectTimeout(text, error.address or self.address)
        raise error

    def report_exit(
        self,
        worker_id: str,
        reason: str,
        running: list[int],
        kind: str,
        facts: DeathFacts | None = None,
    ) -> None:
        """Report why a worker ended, in this session and those that follow until it has arrived."""
        report = WorkerExited(worker_id=worker_id, reason=reason, running=running, kind=kind)
        if facts is not None:
            report.facts = facts.to_plain()
        self._reports.add(report)
        connection = self._runner.connection
        if connection is not None:
            connection.send([*self._reports.take()])

    def stay_away(self) -> None:
        """Make no further attempt after the open session."""
        self._policy.again_s = 0.0

    async def leave(self, reason: str) -> None:
        """Send a goodbye, if there is a session, and close."""
        await self._runner.leave(reason, _LEAVE_TIMEOUT_S)

    def abort(self) -> None:
        """Close at once."""
        self._runner.abort()

    # --- The session ------------------------------------------------------------------------------

    def registration(self, number: int, last_epoch: int) -> Message:
        """See `SessionOwner`."""
        return RegisterSupervisor(
            supervisor_id=self._supervisor_id,
            session=number,
            last_epoch=last_epoch,
            facts=with_metrics_url(process_facts(), self._metrics_url),
        )

    def heartbeat(self) -> list[Message]:
        """See `SessionOwner`."""
        sizes, numbers = self._measure()
        alive = WorkersAlive(worker_ids=list(sizes), rss=list(sizes.values()), numbers=numbers)
        self._reports.on_answers(self._runner.session.n_answered)
        return [*self._reports.beat(), alive, *self._held_up()]

    def on_welcome(self, connection: Connection, welcome: Welcome, outage: Outage) -> None:
        """See `SessionOwner`."""
        self._reports.on_session()
        if outage.error is not None:
            seconds = self._loop.time() - outage.since
            _log.info("the scheduler is back after %.1f s", seconds)
        if not self.opened.done():
            self.opened.set_result(None)

    def on_messages(self, connection: Connection, messages: list[Message]) -> None:
        """See `SessionOwner`."""
        for message in messages:
            if isinstance(message, Stop):
                self._on_stop(message.reason)
            elif isinstance(message, WorkersRetired):
                self._on_retired(message.worker_ids)
            elif isinstance(message, EndWorkers):
                self._on_end(message.worker_ids, message.reason)
            elif isinstance(message, _ORDERS):
                self._on_plugin(connection, message)
            elif isinstance(message, Ask):
                connection.send([self._answer(message)])

    def on_lost(self, reason: WeftError) -> None:
        """See `SessionOwner`."""
        self._reports.on_answers(self._runner.session.n_answered)
        if self._policy.again_s:
            _log.log(
                self._level,
                "the scheduler is gone: %s; trying to reconnect",
                reason,
                extra={"code": "scheduler-away"},
            )

    def on_retry(self, outage: Outage, left_s: float) -> None:
        """See `SessionOwner`."""
        if outage.error is None and outage.n_attempts == 1:
            _log.warning(
                "%s; trying again for %.3g s",
                outage.last_error,
                left_s,
                extra={"code": "scheduler-away"},
            )
        else:
            _log.debug("cannot reach the scheduler yet: %s", outage.last_error)

    def on_over(self, end: GiveUp) -> None:
        """See `SessionOwner`."""
        self._on_over(end)

    def _answer(self, question: Ask) -> Message:
        """Answer a question to the supervisor: for its log, or for more workers."""
        request, name = question.request, question.name
        try:
            if name == "scale":
                return Answer(request=request, info={"names": self._scale(question.arguments)})
            if name == "logs":
                info, next_page = page_of_latest(question.arguments, question.page)
                return Answer(request=request, info=info, next_page=next_page)
        except ValueError as error:
            text = f"question {name!r}: {error}"
            return AskFailed(request=request, kind=BAD_ARGUMENT, text=text)
        text = f"there is no question {name[:100]!r} to a supervisor"
        return AskFailed(request=request, kind=UNKNOWN_QUESTION, text=text)

    def _scale(self, arguments: dict[str, Any]) -> list[str]:
        n = arguments.get("n")
        if n is not None and (type(n) is not int or n < 0):
            raise ValueError(f"n= is a number of workers, not {str(n)[:40]!r}")
        return self._on_scale(n)
