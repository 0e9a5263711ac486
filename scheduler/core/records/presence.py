"""Peers as far as they may be absent: expected, silent, lost, or to be kept on record."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from ....protocol.death_facts import HeldResults
    from ....protocol.wire import messages as m
    from .deadlines import Deadline
    from .peers import WorkerHandle
    from .tasks import SchedulerTask

#: Attempts are numbered from the epoch on, one per so many ns. A scheduler cannot assign tasks
#: faster, so the numbers of a scheduler whose clock goes on are above all earlier ones.
NS_PER_ATTEMPT: Final = 1000


@dataclass(frozen=True, slots=True)
class Members:
    """The processes of a cluster, by id: those of the last epoch are expected by the next one."""

    worker_ids: tuple[str, ...] = ()
    client_ids: tuple[str, ...] = ()


class KeptMembers:
    """Those of the last epoch, and when members of this one were put out to be kept."""

    __slots__ = ("at", "due", "expected")

    def __init__(self, expected: Members) -> None:
        self.expected = expected
        self.at = float("-inf")
        #: when the next `KeepMembers` is due; None = no worker and no client has come or gone since
        self.due: Deadline | None = None


class SignsOfLife(OrderedDict[int, float]):
    """When peers have last sent something: strangers, workers and supervisors.

    {peer: waking time of its last sign of life}, in order of time. Silence ends their session.
    """

    def __init__(self) -> None:
        super().__init__()
        #: when the first of them may have been silent for too long; None while there is none
        self.check: Deadline | None = None
        #: when peers that are sending a long frame are sent a heartbeat next
        self.next_reassurance = float("-inf")


class LostWorker(NamedTuple):
    """A worker that is lost, and what it had."""

    worker: WorkerHandle
    #: {attempt: task} that it was given
    processing: dict[int, SchedulerTask]
    #: {attempt: task} of the results whose only copy it had
    sole: dict[int, SchedulerTask]
    #: its results by function, those with most bytes
    held_most: list[HeldResults]


class LostWorkers:
    """Workers that are lost, or of which that is to be expected, by id."""

    __slots__ = ("exit_reports", "given_up", "unreported")

    def __init__(self) -> None:
        #: {worker_id: report} that came before the connection of that registered worker closed
        self.exit_reports: dict[str, m.WorkerExited] = {}
        #: {worker_id: what it had} of lost workers whose supervisor has not reported yet
        self.unreported: dict[str, LostWorker] = {}
        #: {worker_id: {attempt: task} processing} of workers that did not come back in time, and
        #: whose end was not reported; the latest ones
        self.given_up: dict[str, dict[int, SchedulerTask]] = {}
