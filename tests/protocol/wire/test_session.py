"""A session by events: a process connects to its scheduler, keeps the session, and reconnects."""

from __future__ import annotations

import math

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from weft.protocol.errors import CommClosed, CommError, InternalError, WrongToken
from weft.protocol.wire.session import (
    LONGEST_PAUSE,
    MISSED_HEARTBEATS,
    PHASES,
    Abandon,
    Backoff,
    Beat,
    Connect,
    GiveUp,
    Lose,
    Policy,
    Register,
    ReportOutage,
    Retry,
    Session,
    Silence,
)

REFUSED = CommError("refused")
LOST = CommClosed("the connection ended")


def half() -> float:
    return 0.5


def take(session):
    actions, session.actions = session.actions, []
    return actions


def kinds(session):
    return [type(action) for action in take(session)]


def opened(policy=None, now=0.0, heartbeat_ms=1000):
    session = Session(policy or Policy(), half)
    session.start(now)
    session.on_connected(now)
    session.on_welcomed(7, heartbeat_ms, now)
    take(session)
    return session


def test_a_session_begins_with_a_connection_and_a_registration():
    session = Session(Policy(attempt_s=3.0), half)
    session.start(10.0)
    assert take(session) == [Connect(3.0)]
    session.on_connected(10.1)
    assert take(session) == [Register(1, 0)]
    session.on_welcomed(7, 2000, 10.2)
    assert (session.phase, session.epoch, session.beat_s) == ("open", 7, 2.0)
    session.on_tick(1, 10.2)
    assert take(session) == [Beat()]
    assert session.due == pytest.approx(12.2)


def test_the_next_registration_names_the_session_and_the_last_epoch():
    session = opened()
    session.on_closed(LOST, 1.0)
    session.on_tick(1, session.due)
    session.on_connected(2.0)
    assert take(session)[-1] == Register(2, 7)


def test_delays_double_up_to_the_limit_and_keep_their_share_of_jitter():
    backoff = Backoff(Policy(most_delay_s=1.0), half)
    delays = [backoff.next_s(0.0) for _ in range(6)]
    assert delays == pytest.approx([0.06, 0.12, 0.24, 0.48, 0.6, 0.6])
    backoff.reset(0.0)
    assert backoff.next_s(0.0) == pytest.approx(0.06)


def test_delays_stay_short_while_the_scheduler_may_be_restarted_at_once():
    backoff = Backoff(Policy(soon_s=30.0, soon_delay_s=0.5, most_delay_s=2.0), half)
    backoff.reset(100.0)
    delays = [backoff.next_s(now) for now in (100, 110, 120, 129, 130, 131, 132, 133)]
    assert delays == pytest.approx([0.06, 0.12, 0.24, 0.3, 0.3, 0.6, 1.2, 1.2])


def test_failed_attempts_are_repeated_after_growing_delays():
    session = Session(Policy(), half)
    now, waits = 0.0, []
    session.start(now)
    for _ in range(4):
        session.on_failed(REFUSED, now)
        waits.append(session.due - now)
        now = session.due
        session.on_tick(0, now)
    assert waits == pytest.approx([0.06, 0.12, 0.24, 0.48])
    assert kinds(session) == [Connect, Retry] * 4 + [Connect]


def test_a_short_session_counts_as_a_failed_attempt_and_a_sound_one_does_not():
    session, now, waits = opened(), 0.0, []
    for lasts in (0.1, 0.1, 11.0):
        now += lasts
        session.on_closed(LOST, now)
        waits.append(session.due - now)
        now = session.due
        session.on_tick(0, now)
        session.on_connected(now)
        session.on_welcomed(7, 1000, now)
    assert waits == pytest.approx([0.06, 0.12, 0.06])


def test_silence_abandons_the_connection_and_comes_back():
    session = opened()
    for _ in range(MISSED_HEARTBEATS):
        session.on_tick(1, session.due)
    assert kinds(session) == [Beat] * MISSED_HEARTBEATS
    session.on_tick(1, session.due)
    abandon, lose = take(session)
    assert isinstance(abandon, Abandon)
    assert isinstance(lose, Lose)
    assert "silent for 15 s" in str(lose.reason)
    assert session.phase == "waiting"


def test_anything_received_ends_the_silence():
    session = opened()
    for n_received in range(3 * MISSED_HEARTBEATS):
        session.on_tick(n_received // 2, session.due)
    assert session.phase == "open"


def test_a_pause_of_the_process_counts_as_one_look():
    silence = Silence(3)
    assert [silence.look(n) for n in (1, 1, 1, 2, 2, 2, 2)] == [False] * 2 + [False] * 4 + [True]


def test_twice_the_heartbeats_need_twice_the_looks():
    session = opened(Policy(beats=2))
    assert session.beat_s == 0.5
    for _ in range(2 * MISSED_HEARTBEATS):
        session.on_tick(1, session.due)
    assert session.phase == "open"
    session.on_tick(1, session.due)
    assert session.phase == "waiting"


def test_an_answer_changes_the_time_of_the_next_heartbeats():
    session = opened()
    session.on_tick(1, session.due)
    assert session.due == 1.0
    session.on_answered(3500, 0.25)
    assert session.due == 3.75
    session.on_tick(2, session.due)
    assert session.due == 7.25  # as long as no answer changes it again
    session.on_answered(500, 4.0)
    assert session.due == 4.5
    session.on_answered(0, 4.25)
    assert session.due == 4.5
    session.on_answered(1 << 40, 4.25)
    assert session.due == 4.25 + LONGEST_PAUSE
    assert kinds(session) == [Beat, Beat]


def test_fewer_heartbeats_do_not_delay_the_end_of_a_silent_session():
    session = opened()
    session.on_tick(1, 0.0)
    session.on_answered(5000, 0.0)
    for now in (5.0, 10.0, 15.0):
        session.on_tick(2, now)
    assert session.phase == "open"
    session.on_tick(2, session.due)
    assert (session.phase, session.outage.since) == ("waiting", 20.0)
    assert "silent for 15 s" in str(take(session)[-1].reason)


def test_an_answer_after_the_end_of_its_session_has_no_effect():
    session = opened()
    session.on_closed(LOST, 1.0)
    due = session.due
    session.on_answered(5000, 1.0)
    assert session.due == due


def test_the_first_session_may_not_come_too_late():
    session = Session(Policy(first_s=1.0, attempt_s=10.0), half)
    session.start(0.0)
    assert take(session) == [Connect(1.0)]
    session.on_failed(REFUSED, 0.99)
    assert session.due == pytest.approx(1.0)  # the last attempt is at the end of the time
    session.on_tick(0, 1.0)
    session.on_failed(REFUSED, 1.04)
    give_up = take(session)[-1]
    assert isinstance(give_up, GiveUp)
    assert (give_up.error, give_up.is_final, give_up.outage.n_attempts) == (REFUSED, False, 2)
    assert (session.phase, session.due) == ("over", math.inf)


def welcomed_again(session, epoch, now):
    session.on_tick(0, session.due)
    session.on_connected(now)
    session.on_welcomed(epoch, 1000, now)
    take(session)


def test_schedulers_that_end_one_after_the_other_are_not_waited_for_without_end():
    session = opened(Policy(again_s=60.0, sound_s=10.0))
    session.on_closed(LOST, 100.0)
    for n, now in enumerate([110.0, 130.0, 150.0], 1):
        welcomed_again(session, 7 + n, now)
        session.on_closed(LOST, now + 1)
        assert kinds(session) == [Lose]
        assert session.outage.n_short == n
    welcomed_again(session, 11, 159.0)
    session.on_closed(LOST, 160.0)
    lost, end = take(session)
    assert isinstance(lost, Lose)
    assert isinstance(end, GiveUp)
    assert (end.outage.n_short, end.is_final) == (4, False)


@pytest.mark.parametrize(("epoch", "lasts_s"), [(7, 1.0), (8, 11.0)], ids=["line", "sound"])
def test_a_broken_connection_and_the_end_of_a_sound_session_renew_the_time(epoch, lasts_s):
    session = opened(Policy(again_s=60.0, sound_s=10.0))
    now = 100.0
    for _ in range(5):
        session.on_closed(LOST, now)
        assert kinds(session) == [Lose]
        assert session.outage.n_short == 0
        welcomed_again(session, epoch, now + 30.0)
        now += 30.0 + lasts_s
        epoch += epoch > 7


def test_a_process_that_may_not_come_back_ends_with_its_first_session():
    session = opened(Policy(again_s=0.0))
    session.on_closed(LOST, 5.0)
    lose, give_up = take(session)
    assert (lose.reason, give_up.error, give_up.is_final) == (LOST, LOST, False)


def test_a_final_error_ends_the_attempts():
    class Strict(Policy):
        def is_final(self, error, outage, now):
            return isinstance(error, WrongToken)

    session = Session(Strict(), half)
    session.start(0.0)
    session.on_failed(WrongToken("no"), 0.1)
    assert take(session)[-1].is_final
    assert session.phase == "over"


@pytest.mark.parametrize("phase", ["connecting", "registering", "open", "waiting"])
def test_a_bug_ends_a_session_in_any_phase_and_nothing_else_is_done(phase):
    session = Session(Policy(), half)
    session.start(0.0)
    for name in ("registering", "open"):
        if session.phase != phase and phase != "waiting":
            session.on_connected(0.1) if name == "registering" else session.on_welcomed(7, 50, 0.2)
    if phase == "waiting":
        session.on_failed(REFUSED, 0.1)
    assert session.phase == phase
    bug = InternalError("a bug")
    session.on_bug(bug, 1.0)
    (end,) = take(session)
    assert (end.error, end.is_final, session.phase, session.due) == (bug, True, "over", math.inf)
    session.on_bug(bug, 2.0)
    assert take(session) == []


def test_the_reported_end_of_a_scheduler_is_final():
    session = opened()
    gone = CommError("the cluster was stopped")
    session.on_ended(gone, 1.0)
    abandon, lose, end = take(session)
    assert (abandon, lose) == (Abandon(gone), Lose(gone))
    assert (end.error, end.outage.error, end.is_final) == (gone, gone, True)
    assert (session.phase, session.due) == ("over", math.inf)
    session.on_ended(gone, 2.0)
    assert take(session) == []


def test_an_outage_remembers_since_when_a_foreign_scheduler_answers():
    session = opened()
    session.on_closed(LOST, 1.0)
    for error, now in ((REFUSED, 2.0), (WrongToken("no"), 3.0), (WrongToken("no"), 4.0)):
        session.on_tick(0, session.due)
        session.on_failed(error, now)
    assert session.outage.foreign_since == 3.0


def test_a_registration_without_an_answer_is_abandoned():
    session = Session(Policy(attempt_s=3.0), half)
    session.start(0.0)
    session.on_connected(0.5)
    assert session.due == 3.0
    take(session)
    session.on_tick(0, 3.0)
    assert kinds(session) == [Abandon, Retry]
    assert session.phase == "waiting"


def test_an_outage_is_reported_once_even_while_an_attempt_hangs():
    session = opened(Policy(report_s=5.0, again_s=60.0))
    session.on_closed(LOST, 100.0)
    session.on_tick(0, session.due)  # an attempt that swallows packets
    take(session)
    assert session.due == 105.0
    session.on_tick(0, 105.0)
    (report,) = take(session)
    assert isinstance(report, ReportOutage)
    assert (report.left_s, report.outage.error) == (55.0, LOST)
    assert session.due == math.inf
    session.on_failed(REFUSED, 110.0)
    session.on_tick(0, session.due)
    assert kinds(session) == [Retry, Connect]


def test_an_early_tick_does_nothing():
    session = opened()
    session.on_tick(0, 0.0)
    take(session)
    session.on_tick(0, 0.5)
    assert take(session) == []


def test_events_after_the_end_do_nothing():
    session = opened()
    session.end()
    session.on_closed(LOST, 1.0)
    session.on_tick(0, 100.0)
    assert take(session) == []


@pytest.mark.parametrize("method", ["on_connected", "start"])
def test_a_move_that_the_table_lacks_is_a_bug(method):
    session = opened()
    with pytest.raises(InternalError, match="from open to"):
        getattr(session, method)(1.0)


class AnySession(RuleBasedStateMachine):
    """A shell that does actions, late or at once, against a scheduler with random answers."""

    def __init__(self):
        super().__init__()
        self.now = 0.0
        self.session = Session(Policy(first_s=100.0, again_s=50.0, report_s=5.0), half)
        self.seen = {"idle"}
        self.n_ends = 0
        self.session.start(self.now)

    def drain(self):
        for action in take(self.session):
            self.n_ends += isinstance(action, GiveUp)
            if isinstance(action, Connect):
                assert action.timeout_s > 0
                assert self.n_ends == 0

    @rule(seconds=st.floats(0, 200))
    def wait(self, seconds):
        self.now += seconds

    @rule()
    def wait_until_due(self):
        if self.session.due < math.inf:
            self.now = max(self.now, self.session.due)

    @rule(n_received=st.integers(0, 3))
    def tick(self, n_received):
        self.session.on_tick(n_received, self.now)

    @precondition(lambda self: self.session.phase == "connecting")
    @rule(answers=st.booleans())
    def end_the_attempt(self, answers):
        if answers:
            self.session.on_connected(self.now)
        else:
            self.session.on_failed(REFUSED, self.now)

    @precondition(lambda self: self.session.phase == "registering")
    @rule(epoch=st.integers(1, 5))
    def welcome(self, epoch):
        self.session.on_welcomed(epoch, 500, self.now)

    @rule()
    def close(self):
        self.session.on_closed(LOST, self.now)

    @invariant()
    def nothing_waits_without_a_timer(self):
        self.drain()
        session = self.session
        assert (session.outage is None) == (session.phase == "open") or session.phase == "over"
        if session.phase in {"waiting", "registering", "open"}:
            assert session.due < math.inf
        if session.phase == "over":
            assert session.due == math.inf
            assert self.n_ends == 1
        else:
            assert self.n_ends == 0


TestAnySession = AnySession.TestCase
TestAnySession.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_every_move_of_the_table_has_a_reason():
    assert all(PHASES.values())
