"""A process's session with its scheduler: connect, register, stay, come back. Pure, no I/O.

Workers, supervisors and clients all use this machine, and so do those of the simulator. A shell
opens connections, sends messages and keeps one timer. This machine decides when to do so, how often
to try again, when silence means that the scheduler is gone, and when to stop trying.

            start               on_connected            on_welcomed
     idle ────────→ connecting ─────────────→ registering ─────────────→ open
                     ↑     │ on_failed             │ on_closed             │ on_closed, silence
                     │     ▼                       ▼                       ▼
                     └── waiting ←─────────────────┴───────────────────────┘

From each phase the machine moves to `over`: when it is ended, when an error is final, or when no
session began in time. Each method takes the time and appends to `actions`; `due` is the time at
which `on_tick` must be called next. `PHASES` is the whole table of moves.

A session that ends sooner than `sound_s` after it began counts as a failed attempt: the delay
before the next one keeps doubling. Otherwise a scheduler that accepts and drops its peers would be
asked without a pause.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from ..errors import CommClosed, CommError, InternalError, WeftError, WrongCluster, WrongToken

#: A peer from which nothing came for this many heartbeats is considered lost.
MISSED_HEARTBEATS: Final = 15
#: The scheduler may ask for fewer heartbeats: two are at most this many intervals apart.
LONGEST_PAUSE: Final = 6
#: The longest delay between two attempts of a worker or a client, seconds. A scheduler that follows
#: another one waits for longer than that for those that may still come back.
MOST_DELAY_S: Final = 5.0

Phase: TypeAlias = Literal["idle", "connecting", "registering", "open", "waiting", "over"]

#: {(from, to): the reason}. Any other move is a bug.
PHASES: Final[dict[tuple[Phase, Phase], str]] = {
    ("idle", "connecting"): "started",
    ("idle", "over"): "ended before it started",
    ("connecting", "registering"): "an address answered",
    ("connecting", "waiting"): "no address answered",
    ("connecting", "over"): "ended, or the failure is final, or no time is left",
    ("registering", "open"): "welcomed",
    ("registering", "waiting"): "the connection ended before the welcome",
    ("registering", "over"): "ended, or refused for good, or no time is left",
    ("open", "waiting"): "the connection ended, or the scheduler was silent for too long",
    ("open", "over"): "ended, or the loss is final",
    ("waiting", "connecting"): "the delay has passed",
    ("waiting", "over"): "ended, or no time is left",
}


class Silence:
    """Decides when a connection has been silent for too long. For one connection only.

    Silence is counted in looks, not in seconds. The process that looks may itself have been held
    up: by a task that held the interpreter lock for a minute, by a debugger, by Ctrl-Z. Messages
    that arrived meanwhile wait in the socket, and its overdue timer runs before it reads. Between
    two looks there is an iteration of its loop, in which it reads. So a pause counts as one look,
    however long it took. A look that was meant to come later than others counts as several of them.
    """

    def __init__(self, n_looks: int = MISSED_HEARTBEATS) -> None:
        """Prepare for `n_looks` looks without news, one after the other."""
        self._n_looks = n_looks
        self._n_silent = 0.0
        self._n_received = -1

    def look(self, n_received: int, weight: float = 1.0) -> bool:
        """Compare what was received so far with the last look; return whether it is silent."""
        if n_received != self._n_received:
            self._n_received, self._n_silent = n_received, 0.0
        else:
            self._n_silent += weight
        return self._n_silent >= self._n_looks


class Backoff:
    """Delays between attempts: each limit is twice the last one, and a delay a part of its limit.

    The jitter keeps a thousand peers of a restarted scheduler from connecting in the same instant.
    """

    def __init__(self, policy: Policy, jitter: Callable[[], float]) -> None:
        """Begin with the first limit; `jitter` returns a number from 0 to 1."""
        self._policy = policy
        self._jitter = jitter
        self._limit_s = policy.first_delay_s
        self._soon_until = -math.inf

    def next_s(self, now: float) -> float:
        """Return the next delay: between a fifth of its limit and its limit. Seconds."""
        policy, limit_s = self._policy, self._limit_s
        most_s = policy.soon_delay_s if now < self._soon_until else policy.most_delay_s
        self._limit_s = min(2 * limit_s, most_s)
        return limit_s * (0.2 + 0.8 * self._jitter())

    def reset(self, now: float) -> None:
        """Begin again with the first limit."""
        self._limit_s = self._policy.first_delay_s
        self._soon_until = now + self._policy.soon_s


@dataclass(slots=True, kw_only=True)
class Policy:
    """The rules for attempts: how long a process tries, and which errors are final. In seconds."""

    first_delay_s: float = 0.1
    most_delay_s: float = MOST_DELAY_S
    #: Time after a sound session, or the start, in which delays stay below `soon_delay_s`, because
    #: the scheduler may be started again at once.
    soon_s: float = 0.0
    soon_delay_s: float = 0.5
    #: A session shorter than this counts as a failed attempt.
    sound_s: float = 10.0
    #: The longest that one attempt may take: its address may be one that swallows packets.
    attempt_s: float = 10.0
    #: Time in which the first session must begin; inf = no limit.
    first_s: float = math.inf
    #: Time in which a later one must begin, from the loss on; 0 = the first loss is the end. It is
    #: not renewed by schedulers that end one after the other, each in a session that is not sound:
    #: what this process sends may be the reason.
    again_s: float = math.inf
    #: An outage is reported when it is this old; None = never.
    report_s: float | None = None
    #: Heartbeats sent per interval that the scheduler asks for.
    beats: int = 1
    least_beat_s: float = 0.05

    def is_final(self, error: WeftError, outage: Outage, now: float) -> bool:
        """Return whether no further attempt can help after one that failed. Override it."""
        del error, outage, now
        return False


@dataclass(slots=True)
class Connect:
    """Look the scheduler up and connect, within `timeout_s`; then `on_connected` or `on_failed`."""

    timeout_s: float


@dataclass(slots=True)
class Register:
    """Send the registration: this process's `number`-th session; `last_epoch` 0 = none yet."""

    number: int
    last_epoch: int


@dataclass(slots=True)
class Beat:
    """Send a heartbeat."""


@dataclass(slots=True)
class Abandon:
    """Abort the connection that is open or registering; ignore all its later events."""

    reason: WeftError


@dataclass(slots=True)
class Lose:
    """The session that was open is over. Follows an `Abandon`, if there is one."""

    reason: WeftError


@dataclass(slots=True)
class Outage:
    """The time from the loss of a session, or the start, until the next session."""

    since: float
    #: The error that ended the session; None before the first one.
    error: WeftError | None
    last_error: WeftError | None = None
    n_attempts: int = 0
    is_reported: bool = False
    #: When a scheduler with another token, or of another cluster, answered first; None = never.
    foreign_since: float | None = None
    #: Schedulers that have ended in a row, each soon after its welcome, the last one included.
    n_short: int = 0


@dataclass(slots=True)
class Retry:
    """An attempt failed because of `outage.last_error`, and another one will be made."""

    outage: Outage
    left_s: float


@dataclass(slots=True)
class ReportOutage:
    """Report once that the scheduler is away."""

    outage: Outage
    left_s: float


@dataclass(slots=True)
class GiveUp:
    """No further attempt is made. `error` is the reason; with `is_final` one more is useless."""

    outage: Outage
    error: WeftError
    is_final: bool


Action: TypeAlias = Connect | Register | Beat | Abandon | Lose | Retry | ReportOutage | GiveUp


class Session:
    """The machine. The shell does what `actions` holds, in order, after each call."""

    def __init__(self, policy: Policy, jitter: Callable[[], float]) -> None:
        """Prepare; `start` begins. `jitter` returns numbers from 0 to 1."""
        self.policy = policy
        self.phase: Phase = "idle"
        #: Actions for the shell, in order. It takes the list away.
        self.actions: list[Action] = []
        #: When `on_tick` must be called at the latest; inf = no need.
        self.due = math.inf
        #: Sessions that were asked for. The scheduler refuses an older one than it knows.
        self.number = 0
        #: The epoch of the last scheduler that sent a welcome; 0 = none.
        self.epoch = 0
        #: Between two heartbeats of this process, once it was welcomed, if no answer changes that.
        self.beat_s = 0.0
        #: From the loss (or the start) to the next welcome; None while a session is open.
        self.outage: Outage | None = None
        self._backoff = Backoff(policy, jitter)
        self._silence = Silence()
        #: From the last heartbeat, or its answer, to the next one.
        self._pause_s = 0.0
        self._began = 0.0
        #: No session that begins later counts.
        self._deadline = math.inf
        #: Of the last loss: until when another session was to begin, and the scheduler's epoch.
        self._again_until = math.inf
        self._lost_epoch = 0
        self._n_short = 0
        #: When the delay, the registration or the time until the next heartbeat ends.
        self._until = math.inf
        #: Heartbeats that the scheduler has answered, in the latest session.
        self.n_answered = 0

    # --- Events -----------------------------------------------------------------------------------

    def start(self, now: float) -> None:
        """Make the first attempt at once."""
        self.outage = Outage(now, None)
        self._deadline = now + self.policy.first_s
        self._backoff.reset(now)
        self._attempt(now)

    def on_connected(self, now: float) -> None:
        """Register: an address answered, and the handshake is done."""
        self._move("registering")
        self.number += 1
        self.actions.append(Register(self.number, self.epoch))
        self._set_timer(now)

    def on_failed(self, error: WeftError, now: float) -> None:
        """Wait for the next attempt, or give up: no address answered, or the look-up failed."""
        self._fail(error, now)

    def on_welcomed(self, epoch: int, heartbeat_ms: int, now: float) -> None:
        """Begin a session: the scheduler accepted the registration."""
        self._move("open")
        policy = self.policy
        self.epoch = epoch
        self.beat_s = max(heartbeat_ms / 1000 / policy.beats, policy.least_beat_s)
        self.n_answered = 0
        self.outage = None
        self._deadline = math.inf
        self._began = now
        self._pause_s = self.beat_s
        self._silence = Silence(MISSED_HEARTBEATS * policy.beats)
        self._until = now  # the first heartbeat goes out at once
        self._set_timer(now)

    def on_answered(self, next_ms: int, now: float) -> None:
        """Send the next heartbeat `next_ms` from now: the scheduler answered the last one."""
        if next_ms and self.phase == "open":
            self.n_answered += 1
            pause_s = max(next_ms / 1000, self.policy.least_beat_s)
            self._pause_s = min(pause_s, LONGEST_PAUSE * self.beat_s)
            self._until = now + self._pause_s
            self._set_timer(now)

    def on_closed(self, error: WeftError, now: float) -> None:
        """Come back, or give up: the connection is gone, or the scheduler refused or left."""
        if self.phase == "open":
            self._lose(error, now)
        elif self.phase == "registering":
            self._fail(error, now)

    def on_tick(self, n_received: int, now: float) -> None:
        """Do the actions that are due.

        Args:
            n_received: any number that grows with the data received on the open connection.
            now: seconds, of a clock that is never set back.
        """
        if now < self.due:
            return
        outage = self.outage
        if outage is not None and now >= self._report_at():
            outage.is_reported = True
            self.actions.append(ReportOutage(outage, max(self._deadline - now, 0.0)))
        if now >= self._until:
            if self.phase == "waiting":
                self._attempt(now)
            elif self.phase == "registering":
                error = CommError("the scheduler did not answer the registration")
                self.actions.append(Abandon(error))
                self._fail(error, now)
            elif self.phase == "open":
                self._beat(n_received, now)
        self._set_timer(now)

    def on_ended(self, error: WeftError, now: float) -> None:
        """Give up: the other end has reported that it ends for good."""
        if self.phase == "open":
            self.actions += [Abandon(error), Lose(error)]
            self.outage = Outage(now, error)
            self._give_up(error, is_final=True)

    def on_bug(self, error: InternalError, now: float) -> None:
        """Give up, without a `Lose`: this process is at fault, and its state may be broken."""
        self.actions.clear()
        if self.phase == "open":
            self.outage = Outage(now, error)
        if self.phase not in {"idle", "over"}:
            self._give_up(error, is_final=True)

    def end(self) -> None:
        """Stop trying. An open connection is left to the shell, which may send a goodbye."""
        if self.phase != "over":
            self._move("over")
        self.due = math.inf

    # --- Consequences -----------------------------------------------------------------------------

    def _attempt(self, now: float) -> None:
        self._move("connecting")
        assert self.outage is not None
        self.outage.n_attempts += 1
        timeout_s = min(self.policy.attempt_s, max(self._deadline - now, self.policy.least_beat_s))
        self._until = now + timeout_s
        self.actions.append(Connect(timeout_s))
        self._set_timer(now)

    def _fail(self, error: WeftError, now: float) -> None:
        outage = self.outage
        assert outage is not None
        outage.last_error = error
        if outage.foreign_since is None and isinstance(error, (WrongToken, WrongCluster)):
            outage.foreign_since = now
        if self.policy.is_final(error, outage, now):
            self._give_up(error, is_final=True)
        elif now >= self._deadline:
            self._give_up(error, is_final=False)
        else:
            self.actions.append(Retry(outage, self._deadline - now))
            self._wait(now)

    def _lose(self, error: WeftError, now: float) -> None:
        self.actions.append(Lose(error))
        is_sound = now - self._began > self.policy.sound_s
        if is_sound:
            self._backoff.reset(now)
        if is_sound or self._lost_epoch in (0, self.epoch):
            self._n_short = 0
            self._again_until = now + self.policy.again_s
        else:
            self._n_short += 1
        self._lost_epoch = self.epoch
        self.outage = Outage(now, error, n_short=self._n_short)
        self._deadline = self._again_until
        if now >= self._deadline:
            self._give_up(error, is_final=False)
        else:
            self._wait(now)

    def _wait(self, now: float) -> None:
        self._move("waiting")
        # The last attempt is made when the time is over, not a delay before that.
        self._until = min(now + self._backoff.next_s(now), max(self._deadline, now))
        self._set_timer(now)

    def _beat(self, n_received: int, now: float) -> None:
        if self._silence.look(n_received, self._pause_s / self.beat_s):
            seconds = round(MISSED_HEARTBEATS * self.policy.beats * self.beat_s, 1)
            error = CommClosed(f"it was silent for {seconds:g} s")
            self.actions.append(Abandon(error))
            self._lose(error, now)
        else:
            self._until = now + self._pause_s
            self.actions.append(Beat())

    def _give_up(self, error: WeftError, *, is_final: bool) -> None:
        assert self.outage is not None
        self._move("over")
        self.due = math.inf
        self.actions.append(GiveUp(self.outage, error, is_final))

    def _move(self, phase: Phase) -> None:
        if (self.phase, phase) not in PHASES:
            raise InternalError(f"a session cannot go from {self.phase} to {phase}")
        self.phase = phase

    def _set_timer(self, now: float) -> None:
        """Set `due`. An attempt to connect has the shell's own time limit, and no timer here."""
        due = math.inf if self.phase in {"connecting", "over", "idle"} else self._until
        if self.phase != "over":
            due = min(due, self._report_at())
        self.due = max(due, now)

    def _report_at(self) -> float:
        """Return when the outage is to be reported; infinity if it was, or will not be."""
        outage, report_s = self.outage, self.policy.report_s
        if outage is None or outage.error is None or outage.is_reported or report_s is None:
            return math.inf
        return outage.since + report_s
