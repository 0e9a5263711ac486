"""Laws that hold for each kind of coordination objects: one table, and one test for each law."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.scheduler.builders import Board
from tests.scheduler.callers import Caller
from tests.scheduler.core.coordination.kinds_table import (
    EXAMPLES,
    REMOVALS,
    STAYS,
    WAITS,
    Name,
    operation_of,
    own,
)
from tests.scheduler.core.coordination.objects_kit import LEASE_S, is_empty
from weft.protocol.wire import messages as m
from weft.protocol.wire.messages import coordination as h
from weft.scheduler.core.coordination.kinds import KINDS
from weft.scheduler.core.coordination.records import objects_of
from weft.scheduler.core.records.presence import Members

EVERY = [(kind, operation) for kind, of in KINDS.items() for operation in of.operations]
LANES = [name for name in EVERY if operation_of(name).lane]
GIFTS = [name for name in LANES if operation_of(name).gives]
NO_GIFTS = [name for name in LANES if not operation_of(name).gives]
HELD = [name for name in LANES if KINDS[name[0]].blockers is not None]
PUT_OFF = [name for name in LANES if operation_of(name).is_deferred]
CLOSABLE = [name for name in LANES if "close" in KINDS[name[0]].operations]


def of_each(names: list[Name]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("name", names, ids=".".join)


def test_each_kind_and_each_of_its_operations_is_in_the_table() -> None:
    assert sorted(EXAMPLES) == sorted(EVERY)
    assert sorted(WAITS) == sorted(LANES)
    assert REMOVALS.keys() | STAYS <= KINDS.keys()


class Meeting:
    """Three clients of one object: the first makes the others wait."""

    def __init__(self, board: Board, name: Name, **options: Any) -> None:
        self.board = board
        self.name = name
        self.row = WAITS[name]
        self.operation = operation_of(name)
        self.alice, self.bob, self.carl = (Caller(board, n) for n in ("alice", "bob", "carl"))
        self.row.hold(self.alice)
        #: who holds what is waited for, if anybody
        self.holder = self.alice
        #: {caller: the request of its last wait, and its arguments}
        self.waits: dict[str, int] = {}
        self.arguments: dict[str, dict[str, Any]] = {}

    def wait(self, caller: Caller, *, request: int = -1, **more: Any) -> Any:
        """Call; with a `request`, repeat the last call."""
        arguments = {**self.row.arguments(caller), **own(caller), **more}
        if request > 0:
            arguments = self.arguments[caller.name]
        self.arguments[caller.name] = arguments
        answer = caller.call(*self.name, request=request, **arguments)
        self.waits[caller.name] = caller.request
        return answer

    def let_go(self) -> None:
        self.row.let_go(self.alice, self.holder)

    def takes(self, caller: Caller) -> None:
        """Check that the last event has answered the wait of this client, which holds it now."""
        assert caller.answers() == {self.waits[caller.name]: self.row.answer}
        self.holder = caller

    def waits_on(self, caller: Caller) -> None:
        """Check that the last event has not answered this client."""
        assert caller.answers() == {}

    def return_of(self, caller: Caller) -> Caller:
        """Let a client connect again."""
        back = Caller(self.board, caller.name)
        back._numbers = caller._numbers
        return back

    def end(self) -> None:
        """Let all clients end, and check that nothing is left."""
        assert self.board.rest() == []
        kind = self.name[0]
        last = Caller(self.board, "dora")
        if kind in REMOVALS:
            REMOVALS[kind](last)
        is_away = False
        for client in [*self.board.state.clients.values()]:
            if client.peer is not None:
                self.board.send(client.peer, m.Bye(reason=""))
            else:
                is_away = True
        if is_away:
            self.board.tick(LEASE_S + 1)
        self.board.drop_rest()  # such as: what a client has set does not hold any more
        assert is_empty(self.board) or kind in STAYS
        assert not objects_of(self.board.state).calls
        assert not objects_of(self.board.state).deferred


@pytest.fixture
def board() -> Board:
    """A scheduler that follows others, which have given numbers."""
    return Board(epoch=10**18, client_lease_s=LEASE_S)


@pytest.fixture
def meeting(board: Board, name: Name) -> Iterator[Meeting]:
    meeting = Meeting(board, name)
    yield meeting
    meeting.end()


# --- Waits ----------------------------------------------------------------------------------------


@of_each(LANES)
def test_waits_are_answered_in_their_order_or_all_at_once(meeting: Meeting) -> None:
    bob, carl = meeting.bob, meeting.carl
    assert meeting.wait(bob) is None
    assert meeting.wait(carl) is None
    meeting.let_go()
    meeting.takes(bob)
    if not meeting.row.is_shared:
        meeting.waits_on(carl)
        meeting.let_go()
    meeting.takes(carl)


@of_each(LANES)
def test_a_call_that_may_not_wait_is_late_at_once(meeting: Meeting) -> None:
    assert meeting.wait(meeting.bob, timeout=0) == meeting.row.late
    meeting.let_go()
    meeting.waits_on(meeting.bob)


@of_each(LANES)
def test_a_wait_with_a_time_limit_ends_with_it_and_those_behind_go_on(meeting: Meeting) -> None:
    bob, carl = meeting.bob, meeting.carl
    assert meeting.wait(bob, timeout=5) is None
    assert meeting.wait(carl, timeout=50) is None
    meeting.board.tick(4.9)
    meeting.waits_on(bob)
    meeting.board.tick(0.2)
    assert bob.answers() == {meeting.waits["bob"]: meeting.row.late}
    meeting.waits_on(carl)
    meeting.let_go()
    meeting.waits_on(bob)
    meeting.takes(carl)
    deadlines = meeting.board.state.deadlines
    assert deadlines.count() == deadlines.n_pending


@of_each(LANES)
def test_a_wait_that_is_withdrawn_is_dropped_and_those_behind_go_on(meeting: Meeting) -> None:
    bob, carl = meeting.bob, meeting.carl
    meeting.wait(bob)
    meeting.wait(carl)
    assert bob.withdraw(meeting.waits["bob"]) == {}
    meeting.let_go()
    meeting.waits_on(bob)
    meeting.takes(carl)


@of_each(LANES)
def test_a_call_that_is_withdrawn_when_it_was_answered_gives_back_its_gift(
    meeting: Meeting,
) -> None:
    bob, carl = meeting.bob, meeting.carl
    meeting.wait(bob)
    meeting.wait(carl)
    meeting.let_go()
    meeting.takes(bob)
    if meeting.row.is_shared:
        meeting.takes(carl)
    bob.withdraw(meeting.waits["bob"])
    if meeting.operation.gives:
        meeting.takes(carl)
    else:
        meeting.waits_on(carl)


@of_each(LANES)
def test_a_wait_that_is_sent_again_is_answered_once(meeting: Meeting) -> None:
    bob = meeting.bob
    meeting.wait(bob)
    request = meeting.waits["bob"]
    assert meeting.wait(bob, request=request) is None
    meeting.let_go()
    meeting.takes(bob)
    # The answer may have been lost: it is sent as often as the call.
    assert meeting.wait(bob, request=request) == meeting.row.answer


@of_each(LANES)
def test_a_client_that_ends_waits_no_more_and_those_behind_go_on(meeting: Meeting) -> None:
    meeting.wait(meeting.bob)
    meeting.wait(meeting.carl)
    meeting.board.send(meeting.bob.peer, m.Bye(reason=""))
    meeting.let_go()
    meeting.takes(meeting.carl)


# --- Clients that are away ------------------------------------------------------------------------


@of_each(GIFTS)
def test_nothing_is_given_to_a_client_that_is_away(meeting: Meeting) -> None:
    bob, carl = meeting.bob, meeting.carl
    meeting.wait(bob)
    meeting.wait(carl)
    meeting.board.close(bob.peer)
    meeting.let_go()
    meeting.takes(carl)
    back = meeting.return_of(bob)
    meeting.waits_on(back)
    meeting.let_go()
    meeting.takes(back)


@of_each(GIFTS)
def test_a_client_that_is_back_gets_at_once_what_has_come_meanwhile(meeting: Meeting) -> None:
    meeting.wait(meeting.bob)
    meeting.board.close(meeting.bob.peer)
    meeting.let_go()
    meeting.takes(meeting.return_of(meeting.bob))


@of_each(GIFTS)
def test_a_gift_whose_client_is_gone_before_it_has_read_it_is_passed_on(meeting: Meeting) -> None:
    meeting.wait(meeting.bob)
    meeting.wait(meeting.carl)
    meeting.let_go()
    meeting.takes(meeting.bob)
    meeting.board.close(meeting.bob.peer)
    meeting.board.tick(LEASE_S - 1)
    meeting.waits_on(meeting.carl)
    meeting.board.tick(2)
    meeting.takes(meeting.carl)


@of_each(NO_GIFTS)
def test_a_wait_for_no_gift_goes_on_while_its_client_is_away(meeting: Meeting) -> None:
    bob = meeting.bob
    meeting.wait(bob)
    request = meeting.waits["bob"]
    meeting.board.close(bob.peer)
    meeting.let_go()
    back = meeting.return_of(bob)
    assert meeting.wait(back, request=request) == meeting.row.answer


@of_each(LANES)
def test_a_wait_of_a_client_that_is_away_ends_in_time(meeting: Meeting) -> None:
    bob = meeting.bob
    meeting.wait(bob, timeout=5)
    meeting.board.close(bob.peer)
    meeting.board.tick(6)
    back = meeting.return_of(bob)
    if not meeting.operation.is_read:  # the answer to a read is not kept
        again = meeting.wait(back, request=meeting.waits["bob"])
        assert again == meeting.row.late
    meeting.let_go()
    meeting.waits_on(back)


# --- What is held ---------------------------------------------------------------------------------


@of_each(HELD)
@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "ends"])
def test_leases_of_a_client_are_passed_on_when_it_is_gone(
    meeting: Meeting, is_killed: bool
) -> None:
    meeting.wait(meeting.bob)
    if is_killed:
        meeting.board.close(meeting.alice.peer)
        meeting.board.tick(LEASE_S - 1)
        meeting.waits_on(meeting.bob)
        meeting.board.tick(2)
    else:
        meeting.board.send(meeting.alice.peer, m.Bye(reason=""))
    meeting.takes(meeting.bob)
    again = Caller(meeting.board, "alice")
    if is_killed:
        lost = again.call(meeting.name[0], "restate", **meeting.row.arguments(again), **own(again))
        assert lost == h.HOLD_LOST
        assert "for longer than its lease" in again.text


@of_each(HELD)
def test_a_client_that_is_back_in_time_holds_what_it_held(meeting: Meeting) -> None:
    meeting.board.close(meeting.alice.peer)
    back = meeting.return_of(meeting.alice)
    arguments = {**meeting.row.arguments(back), **own(back)}
    assert back.call(meeting.name[0], "restate", **arguments) == {}
    assert meeting.wait(meeting.bob, timeout=0) == meeting.row.late
    meeting.holder = back
    meeting.wait(meeting.bob)
    meeting.let_go()
    meeting.takes(meeting.bob)


@of_each(HELD)
def test_a_lease_that_is_not_held_cannot_be_released(meeting: Meeting) -> None:
    kind, bob = meeting.name[0], meeting.bob
    arguments = {**meeting.row.arguments(bob), **own(bob)}
    assert bob.call(kind, "release", **arguments) == h.NOT_HELD
    meeting.let_go()
    assert meeting.wait(bob) == meeting.row.answer
    assert bob.call(kind, "release", **{**arguments, "lease": "another"}) == h.NOT_HELD
    assert bob.call(kind, "release", **arguments) == {}
    assert bob.call(kind, "release", **arguments) == h.NOT_HELD


@of_each(HELD)
def test_a_second_lease_of_one_owner_is_refused_unless_its_wait_ends(meeting: Meeting) -> None:
    alice = meeting.alice
    again = {"lease": "again", "owner": "alice"}
    if meeting.name[0] in (h.LOCK, h.MULTILOCK):
        assert meeting.wait(alice, **again) == h.ALREADY_HELD
    assert meeting.wait(alice, **again, timeout=1) is None
    meeting.board.tick(2)
    assert meeting.wait(alice, lease="other", owner="other") is None
    meeting.row.let_go(alice, alice)
    assert alice.answers()[meeting.waits["alice"]] == meeting.row.answer


# --- The end of an object -------------------------------------------------------------------------


@of_each(CLOSABLE)
def test_a_closed_object_refuses_those_that_wait_until_it_is_made_anew(meeting: Meeting) -> None:
    kind, bob = meeting.name[0], meeting.bob
    limit = EXAMPLES[kind, "close"].arguments
    assert meeting.wait(bob) is None
    assert meeting.alice.call(kind, "close", **limit) == {}
    assert bob.answers() == {meeting.waits["bob"]: h.CLOSED}
    assert meeting.wait(bob) == h.CLOSED
    assert bob.call(kind, "create", **EXAMPLES[kind, "create"].arguments) == {}
    assert meeting.wait(bob, timeout=0) != h.CLOSED


# --- A scheduler that was started again -----------------------------------------------------------


@pytest.fixture
def new() -> Board:
    """A scheduler that waits for alice, of the last one."""
    return Board(expected=Members((), ("alice",)), client_lease_s=LEASE_S)


def ask(board: Board, name: Name, who: str = "bob", **more: Any) -> Caller:
    caller = Caller(board, who)
    assert caller.call(*name, **WAITS[name].arguments(caller), **own(caller), **more) is None
    return caller


@of_each(PUT_OFF)
def test_a_call_that_is_put_off_ends_in_time(new: Board, name: Name) -> None:
    bob = ask(new, name, timeout=2)
    new.tick(1.9)
    assert bob.answers() == {}
    new.tick(0.2)
    assert bob.answers() == {bob.request: WAITS[name].late}
    assert new.state.awaits_peers


@of_each(PUT_OFF)
def test_a_call_that_is_put_off_is_begun_at_the_end_of_the_recovery(new: Board, name: Name) -> None:
    bob = ask(new, name)
    while new.state.awaits_peers:
        assert bob.answers() == {}
        new.tick(1)
    if name not in HELD:
        assert bob.answers() == {}
        WAITS[name].let_go(Caller(new, "carl"), bob)
    assert bob.answers() == {bob.request: WAITS[name].answer}
    assert new.rest() == ["Recovered"]


@of_each(PUT_OFF)
@pytest.mark.parametrize("is_withdrawn", [True, False], ids=["withdrawn", "its client ends"])
def test_a_call_that_is_put_off_may_end_before(new: Board, name: Name, is_withdrawn: bool) -> None:
    bob = ask(new, name)
    if is_withdrawn:
        bob.withdraw(bob.request)
    else:
        new.send(bob.peer, m.Bye(reason=""))
    new.tick(100)
    assert objects_of(new.state).deferred == {}
    assert is_empty(new)


@of_each([name for name in PUT_OFF if name in GIFTS])
def test_nothing_is_given_to_a_client_that_went_during_the_recovery(name: Name) -> None:
    board = Board(expected=Members((), ("alice",)), client_lease_s=600)
    bob, carl = ask(board, name, "bob"), ask(board, name, "carl")
    board.close(bob.peer)
    board.tick(80)
    assert not board.state.awaits_peers
    assert carl.answers() == {carl.request: WAITS[name].answer}
    assert board.rest() == ["Recovered"]
    WAITS[name].let_go(carl, carl)
    back = Caller(board, "bob")
    assert back.answers() == {bob.request: WAITS[name].answer}


@of_each(HELD)
def test_leases_of_the_last_scheduler_are_not_given_again(new: Board, name: Name) -> None:
    row = WAITS[name]
    bob = ask(new, name)
    alice = Caller(new, "alice", last_epoch=1)
    assert alice.call(name[0], "restate", **row.arguments(alice), **own(alice)) == {}
    new.send(alice.peer, m.Resubmitted())
    new.tick(10)
    assert not new.state.awaits_peers
    assert bob.answers() == {}
    row.let_go(alice, alice)
    assert bob.answers() == {bob.request: row.answer}
    assert new.rest() == ["Recovered", "Recovered"]


# --- Each operation -------------------------------------------------------------------------------


def do(caller: Caller, name: Name, **more: Any) -> Any:
    """Call as the table says."""
    row = EXAMPLES[name]
    return caller.call(*name, row.name, **{**row.arguments, **more})


@of_each(EVERY)
def test_an_operation_is_answered(board: Board, alice: Caller, name: Name) -> None:
    EXAMPLES[name].before(alice)
    if name == (h.TOPIC, "last"):
        assert do(alice, name)["last"] >= 0
    else:
        assert do(alice, name) == EXAMPLES[name].answer


def contents(board: Board) -> list[Any]:
    """Return what is in all objects."""
    slots = [
        (slot, getattr(record, slot))
        for record in objects_of(board.state).records.values()
        for cls in type(record).__mro__[:-1]
        for slot in cls.__slots__  # type: ignore[attr-defined]
        if slot != "users"
    ]
    return [(slot, repr(value)) for slot, value in slots]


@of_each(EVERY)
def test_an_operation_that_is_sent_again_is_done_once(
    board: Board, alice: Caller, name: Name
) -> None:
    EXAMPLES[name].before(alice)
    answer = do(alice, name)
    after = contents(board)
    assert do(alice, name, request=alice.request) == answer
    assert contents(board) == after


@of_each(EVERY)
def test_an_answer_is_kept_until_it_is_acknowledged_unless_it_only_reads(
    board: Board, alice: Caller, name: Name
) -> None:
    EXAMPLES[name].before(alice)
    do(alice, name)
    (calls,) = objects_of(board.state).calls.values()
    assert (alice.request in calls.answered) is not operation_of(name).is_read
    note = m.Operate(request=0, operation=h.NOTE, acknowledged=[*range(1, alice.request + 1)])
    board.send(alice.peer, note)
    assert calls.answered == {}


@of_each(EVERY)
def test_an_operation_waits_for_the_end_of_a_recovery_if_it_must(name: Name) -> None:
    board = Board(expected=Members((), ("alice",)))
    bob = Caller(board, "bob")
    operation = operation_of(name)
    answer = do(bob, name, timeout=30)
    if operation.is_deferred:
        assert answer is None
        assert [*objects_of(board.state).deferred] == [
            *objects_of(board.state).calls[board.state.clients["bob"]].waiting.values()
        ]
    else:
        assert objects_of(board.state).deferred == {}
        assert answer is not None or operation.lane


@of_each(EVERY)
def test_a_wrong_call_is_refused_and_changes_nothing(
    board: Board, alice: Caller, name: Name
) -> None:
    row = EXAMPLES[name]
    for timeout in (-1, float("nan"), "long"):
        assert do(alice, name, timeout=timeout) == h.BAD_CALL
    for wrong in ("", "n" * 1025):
        assert alice.call(*name, wrong, **row.arguments) == h.BAD_CALL
    if operation_of(name).has_value:
        for values in ([], [b"1", b"2"]):
            assert do(alice, name, values=values) == h.BAD_CALL
    assert alice.call(name[0], "climb", row.name, **row.arguments) == h.BAD_CALL
    assert board.refused() == []
    assert is_empty(board)


@of_each(EVERY)
def test_nothing_is_left_of_a_call_when_its_client_has_ended(
    board: Board, alice: Caller, name: Name
) -> None:
    EXAMPLES[name].before(alice)
    do(alice, name)
    if name[0] in REMOVALS:
        REMOVALS[name[0]](alice)
    board.send(alice.peer, m.Bye(reason=""))
    assert is_empty(board) or name[0] in STAYS
    assert objects_of(board.state).calls == {}
