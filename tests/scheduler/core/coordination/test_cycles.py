"""cycles.py: waits that have no end are found when they have lasted for a moment, and are named."""

from __future__ import annotations

import random
from itertools import permutations

import pytest

from tests.scheduler.builders import Board, graph
from tests.scheduler.callers import Caller
from weft.protocol.wire import messages as m
from weft.protocol.wire.messages import coordination as h
from weft.scheduler.core.coordination import cycles
from weft.scheduler.core.coordination.cycles import SETTLE_S, Waits, find_cycle, suspects_of
from weft.scheduler.core.records.presence import Members
from weft.scheduler.core.recovery.barrier import QUIET_S

from .objects_kit import GRANTED


def block(board: Board, worker: int, key: str, *keys: str) -> None:
    """Let a task of a worker wait for tasks."""
    board.send(worker, m.AttemptsBlocked(attempts=[board.attempt(key)], keys=[list(keys)]))


def failed(board: Board, worker: int, after: float = 1.5 * SETTLE_S) -> dict[int, str]:
    """Let time pass; return the waits of a worker's tasks that fail, with their texts."""
    out = board.tick(after).get(worker, [])
    waits = [x for x in out if isinstance(x, m.FailWaits)]
    return {a: text for x in waits for a, text in zip(x.attempts, x.texts, strict=True)}


def refused(board: Board, caller: Caller, after: float = 1.5 * SETTLE_S) -> dict[int, str]:
    """Let time pass; return the calls of a client that are refused, with their texts."""
    out = board.tick(after).get(caller.peer, [])
    return {x.request: x.text for x in out if isinstance(x, m.Operated) and x.problem == h.CYCLE}


def start(board: Board, client: int, *keys: str) -> int:
    """Let tasks run at a worker; return it."""
    worker = board.worker(nthreads=8)
    board.send(client, graph(" ".join(keys)))
    assert {board.where(key) for key in keys} == {worker}
    return worker


# --- Tasks ----------------------------------------------------------------------------------------


def test_the_wait_that_closes_a_cycle_of_tasks_fails_and_names_all(board):
    client = board.client()
    worker = start(board, client, "f", "g")
    block(board, worker, "f", "g")
    assert failed(board, worker) == {}
    block(board, worker, "g", "f")
    assert failed(board, worker, SETTLE_S / 2) == {}
    ((attempt, text),) = failed(board, worker).items()
    assert attempt == board.attempt("g")
    assert text.startswith("task 'g' would wait for ever")
    assert "task 'g' waits for task 'f'; task 'f' waits for task 'g'" in text
    assert failed(board, worker, 10.0) == {}


def test_a_wait_for_a_task_that_needs_the_result_is_a_cycle(board):
    client = board.client()
    worker = start(board, client, "f")
    board.send(client, graph(":f -> a", "a -> b"))
    block(board, worker, "f", "b")
    ((_, text),) = failed(board, worker).items()
    assert "'f' waits for task 'b'; task 'b' waits for task 'a'; task 'a' waits for" in text


@pytest.mark.parametrize("end", ["resumed", "finished", "lost", "released", "known-no-more"])
def test_a_wait_that_ends_in_time_is_no_part_of_a_cycle(board, end):
    client = board.client()
    worker = start(board, client, "f", "g")
    block(board, worker, "f", "g")
    block(board, worker, "g", "f")
    if end == "resumed":
        board.send(worker, m.AttemptsResumed(attempts=[board.attempt("f")]))
    elif end == "finished":
        board.finish(worker, "f")
    elif end == "lost":
        board.send(worker, m.Bye(reason=""))
    elif end == "released":
        board.send(client, m.ReleaseKeys(keys=["f"]))
    else:
        board.send(client, m.CancelKeys(keys=["f", "g"], force=False, reason=""))
    assert failed(board, worker) == {}


def test_a_task_that_waits_for_something_else_may_go_on(board):
    client = board.client()
    worker = start(board, client, "f", "g", "k")
    block(board, worker, "f", "g")
    block(board, worker, "g")
    block(board, worker, "k", "f", "unknown")
    assert failed(board, worker, 10.0) == {}


def test_a_wait_for_a_cycle_fails_only_with_what_it_waits_for(board):
    client = board.client()
    worker = start(board, client, "f", "g", "outside")
    block(board, worker, "f", "g")
    block(board, worker, "g", "f")
    block(board, worker, "outside", "f")
    (attempt,) = failed(board, worker)
    assert attempt == board.attempt("g")
    board.send(worker, m.AttemptsResumed(attempts=[attempt]))
    assert failed(board, worker, 10.0) == {}


def test_a_worker_that_is_away_is_left_alone_until_it_reports_anew():
    board = Board(away_s=30.0)
    client = board.client()
    worker = start(board, client, "f", "g")
    attempts = {key: board.attempt(key) for key in ("f", "g")}
    block(board, worker, "f", "g")
    block(board, worker, "g", "f")
    board.close(worker)
    assert failed(board, worker) == {}
    back = board.come_back(nthreads=8, running=attempts)
    block(board, back, "f", "g")
    block(board, back, "g", "f")
    assert list(failed(board, back)) == [attempts["g"]]


# --- Locks ----------------------------------------------------------------------------------------


def test_two_that_wait_for_each_others_locks_are_found(board, alice, bob):
    assert alice.call(h.LOCK, "acquire", "A", lease="1", owner="t1") == GRANTED
    assert bob.call(h.LOCK, "acquire", "B", lease="1", owner="t2") == GRANTED
    assert alice.call(h.LOCK, "acquire", "B", lease="2", owner="t1") is None
    assert refused(board, alice) == {}
    assert bob.call(h.LOCK, "acquire", "A", lease="2", owner="t2") is None
    closing = bob.request
    ((request, text),) = refused(board, bob).items()
    assert request == closing
    assert "t2 of client bob waits for lock 'A', which t1 of client alice holds" in text
    bob.call(h.LOCK, "release", "B", lease="1")
    assert list(alice.answers().values()) == [GRANTED]


@pytest.mark.parametrize("why", ["time limit", "another thread", "client away", "withdrawn"])
def test_locks_that_may_be_released_are_no_cycle(board, alice, bob, why):
    assert alice.call(h.LOCK, "acquire", "A", lease="1", owner="t1") == GRANTED
    assert bob.call(h.LOCK, "acquire", "B", lease="1", owner="t2") == GRANTED
    more = {"timeout": 100.0} if why == "time limit" else {}
    owner = "t3" if why == "another thread" else "t1"
    assert alice.call(h.LOCK, "acquire", "B", lease="2", owner=owner, **more) is None
    request = alice.request
    assert bob.call(h.LOCK, "acquire", "A", lease="2", owner="t2") is None
    if why == "client away":
        board.close(alice.peer)
    elif why == "withdrawn":
        alice.withdraw(request)
    assert refused(board, bob, 10.0) == {}


def test_a_cycle_is_found_when_its_clients_are_back(board, alice, bob):
    assert alice.call(h.LOCK, "acquire", "A", lease="1", owner="t1") == GRANTED
    assert bob.call(h.LOCK, "acquire", "B", lease="1", owner="t2") == GRANTED
    assert alice.call(h.LOCK, "acquire", "B", lease="2", owner="t1") is None
    assert bob.call(h.LOCK, "acquire", "A", lease="2", owner="t2") is None
    closing = bob.request
    carl = Caller(board, "carl")
    assert carl.call(h.LOCK, "acquire", "A", lease="3", owner="t3") is None
    board.close(alice.peer)
    assert refused(board, bob, 10.0) == {}
    assert len(suspects_of(board.state).waits) == 3
    alice.peer = board.client("alice")
    ((request, text),) = refused(board, bob, 2.5 * SETTLE_S).items()
    assert request == closing
    assert "t2 of client bob waits for lock 'A', which t1 of client alice holds" in text
    assert refused(board, carl, 10.0) == {}
    assert not suspects_of(board.state).waits


def test_a_wait_for_one_that_goes_on_is_not_looked_at_again(board, alice, bob):
    assert alice.call(h.LOCK, "acquire", "A", lease="1", owner="t1") == GRANTED
    assert bob.call(h.LOCK, "acquire", "A", lease="2", owner="t2") is None
    carl = Caller(board, "carl")
    board.close(carl.peer)
    board.tick(1.5 * SETTLE_S)
    assert not suspects_of(board.state).waits


def test_a_semaphore_is_stuck_when_all_its_holders_are(board, alice, bob):
    carl = Caller(board, "carl")

    def take(who: Caller, name: str, owner: str, kind: str = h.SEMAPHORE) -> object:
        limit = {"limit": 2} if kind == h.SEMAPHORE else {}
        return who.call(kind, "acquire", name, lease=f"{name} {owner}", owner=owner, **limit)

    assert take(alice, "S", "a") == take(bob, "S", "b") == GRANTED
    assert take(carl, "L", "c", h.LOCK) == GRANTED
    assert take(carl, "S", "c") is None
    assert take(alice, "L", "a", h.LOCK) is None
    assert refused(board, alice, 5.0) == {}  # bob may release
    assert take(bob, "L", "b", h.LOCK) is None
    ((_, text),) = refused(board, bob).items()
    assert "c of client carl waits for semaphore 'S', which " in text


def test_a_multilock_waits_for_all_its_names_and_for_those_before_it(board, alice, bob):
    carl = Caller(board, "carl")

    def take(who: Caller, *names: str) -> object:
        return who.call(
            h.MULTILOCK, "acquire", "all", lease=names[0], owner=who.name, names=[*names],
            number=len(names),
        )  # fmt: skip

    assert alice.call(h.LOCK, "acquire", "L", lease="1", owner="alice") == GRANTED
    assert take(bob, "m1")["granted"]
    assert take(alice, "m1", "m2") is None  # m2 is reserved
    assert take(carl, "m2") is None
    assert refused(board, carl, 5.0) == {}
    assert bob.call(h.LOCK, "acquire", "L", lease="1", owner="bob") is None
    ((_, text),) = refused(board, bob).items()
    assert "alice of client alice waits for the locks 'm1', 'm2' of a MultiLock" in text


def test_a_task_and_the_holder_of_a_lock_wait_for_each_other(board, alice):
    worker = start(board, alice.peer, "parent", "child")
    parent, child = (h.owner_of_attempt(board.attempt(key)) for key in ("parent", "child"))
    assert alice.acquire(owner=parent) == GRANTED
    block(board, worker, "parent", "child")
    assert alice.acquire("2", owner=child) is None
    block(board, worker, "child")
    ((_, text),) = refused(board, alice).items()
    assert "task 'child' waits for lock 'x', which task 'parent' holds" in text


def test_a_holder_whose_task_has_ended_is_no_part_of_a_cycle(board, alice):
    worker = start(board, alice.peer, "f", "g")
    first, second = (h.owner_of_attempt(board.attempt(key)) for key in ("f", "g"))
    assert alice.acquire(owner=first) == GRANTED
    board.finish(worker, "f")
    assert alice.acquire("2", owner=second) is None
    assert refused(board, alice, 5.0) == {}


def test_only_owners_of_this_form_are_tasks():
    assert h.attempt_of(h.owner_of_attempt(77)) == 77
    for owner in ("", "attempt-", "attempt-x", "attempt-²", "thread-7", "7", "attempt-" + "9" * 30):
        assert h.attempt_of(owner) == 0


def test_a_dropped_attempt_that_holds_a_lock_is_part_of_a_cycle(board, alice):
    worker = start(board, alice.peer, "parent", "child")
    number = board.attempt("parent")
    child = h.owner_of_attempt(board.attempt("child"))
    assert alice.acquire(owner=h.owner_of_attempt(number)) == GRANTED
    block(board, worker, "parent", "child")
    board.send(alice.peer, m.CancelKeys(keys=["parent"], force=False, reason=""))
    assert number in board.state.workers[worker].zombies
    assert alice.acquire("2", owner=child) is None
    block(board, worker, "child")
    ((_, text),) = refused(board, alice).items()
    assert f"which attempt {number} on worker w, which was dropped and still runs holds" in text


def test_the_wait_that_closes_a_cycle_may_be_that_of_an_attempt_that_is_dropped_then(board, alice):
    worker = start(board, alice.peer, "parent", "child")
    number = board.attempt("parent")
    child = h.owner_of_attempt(board.attempt("child"))
    assert alice.acquire(owner=h.owner_of_attempt(number)) == GRANTED
    assert alice.acquire("2", owner=child) is None
    block(board, worker, "child")
    board.tick(SETTLE_S / 2)
    block(board, worker, "parent", "child")
    board.send(alice.peer, m.CancelKeys(keys=["parent"], force=False, reason=""))
    assert list(failed(board, worker)) == [number]


def test_a_wait_for_a_task_that_is_not_known_yet_is_looked_at_again(board):
    client = board.client()
    worker = start(board, client, "f")
    block(board, worker, "f", "late")
    assert failed(board, worker, 5.0) == {}
    board.send(client, graph(":f -> late"))
    assert list(failed(board, worker)) == [board.attempt("f")]
    board.send(worker, m.AttemptsResumed(attempts=[board.attempt("f")]))
    board.tick(1.5 * SETTLE_S)
    assert not suspects_of(board.state).waits


@pytest.mark.parametrize("blocks", [True, False])
def test_a_wait_for_a_limit_counts_also_if_its_worker_does_not_report_it(board, alice, blocks):
    """Beyond many, a worker does not; a coroutine may go on with something else."""
    worker = start(board, alice.peer, "parent", "child")
    parent, child = (h.owner_of_attempt(board.attempt(key)) for key in ("parent", "child"))
    assert alice.acquire(owner=parent, kind=h.LIMIT, limit=1) == GRANTED
    assert alice.acquire("2", owner=child, kind=h.LIMIT, limit=1, blocks=blocks) is None
    board.tick(SETTLE_S / 2)
    block(board, worker, "parent", "child")
    waits = failed(board, worker)
    assert list(waits) == ([board.attempt("parent")] if blocks else [])


# --- Actors ---------------------------------------------------------------------------------------


def live(board: Board, client: int, *keys: str) -> int:
    """Let a worker have actors; return it."""
    worker = board.worker("home", nthreads=8)
    message = graph(" ".join(keys))
    message.functions = [m.ACTOR_FUNCTION]
    board.send(client, message)
    board.finish(worker, *keys, blob=None, nbytes=1 << 20)
    return worker


def wait(
    board: Board,
    worker: int,
    actor: str,
    *,
    keys: tuple[str, ...] = (),
    call: str = "",
    begun: tuple[str, ...] = (),
    is_open: bool = True,
) -> None:
    """Let an actor wait: for tasks, or for a call of another, as in "actor h/1/2"."""
    other, _, text = call.partition(" ")
    report = m.ActorsBlocked(
        names=[actor],
        attempts=[board.attempt(actor)],
        keys=[[*keys]],
        actors=[[other] if other else []],
        calls=[[text] if text else []],
        begun=[[*begun]],
        open=[[*begun] if is_open else []],
    )
    board.send(worker, report)


def test_two_actors_that_wait_for_each_other_are_found(board):
    client = board.client()
    worker = live(board, client, "a", "b")
    wait(board, worker, "a", call="b h/1/5", begun=("c/1/0",))
    assert failed(board, worker) == {}
    wait(board, worker, "b", call="a h/1/6", begun=("h/1/5",))
    ((attempt, text),) = failed(board, worker).items()
    assert attempt == board.attempt("b")
    assert text.startswith("actor 'b' would wait for ever")
    assert (
        "actor 'b' waits for a call of actor 'a'; actor 'a' waits for a call of actor 'b'" in text
    )


@pytest.mark.parametrize("why", ["answered", "resumed", "lost", "away", "no wait of the other"])
def test_a_call_that_is_answered_or_may_be_is_no_part_of_a_cycle(why):
    board = Board(away_s=30.0)
    client = board.client()
    worker = live(board, client, "a", "b")
    wait(board, worker, "a", call="b h/1/5", begun=("c/1/0",))
    if why == "answered":  # and the answer is on its way: another call of `b` waits for `a`
        wait(board, worker, "b", call="a h/1/6", begun=("h/1/5", "c/2/9"), is_open=False)
    elif why != "no wait of the other":
        wait(board, worker, "b", call="a h/1/6", begun=("h/1/5",))
    if why == "resumed":
        board.send(worker, m.ActorsResumed(attempts=[board.attempt("a")]))
    elif why == "lost":
        board.send(worker, m.Bye(reason=""))
    elif why == "away":
        board.close(worker)
    assert failed(board, worker, 5.0) == {}


def test_calls_behind_those_that_have_begun_wait_for_the_actor(board):
    client = board.client()
    worker = live(board, client, "a", "b")
    wait(board, worker, "b", call="a h/1/9", begun=("h/1/5",))
    wait(board, worker, "a", call="b h/1/6", begun=("h/1/8",))
    assert list(failed(board, worker)) == [board.attempt("a")]
    board.send(worker, m.ActorsResumed(attempts=[board.attempt("a")]))
    wait(board, worker, "a", call="b other/1/0", begun=("h/1/8",))
    assert list(failed(board, worker)) == [board.attempt("a")]


def test_a_task_and_an_actor_that_wait_for_each_other(board):
    client = board.client()
    worker = live(board, client, "a")
    board.send(client, graph("f"))
    wait(board, worker, "a", keys=("f",), begun=("h/1/0",))
    board.send(
        worker,
        m.AttemptsBlocked(attempts=[board.attempt("f")], actors=[["a"]], calls=[["h/1/1"]]),
    )
    ((attempt, text),) = failed(board, worker).items()
    assert attempt == board.attempt("f")
    assert "task 'f' waits for a call of actor 'a'; actor 'a' waits for task 'f'" in text


def test_an_actor_that_waits_for_a_lock_of_one_that_waits_for_it(board):
    client = board.client()
    worker = live(board, client, "a", "b")
    inside = Caller(board, "of the program")
    a, b = (h.owner_of_attempt(board.attempt(key)) for key in "ab")
    assert inside.acquire("1", owner=a) == GRANTED
    assert inside.acquire("2", owner=b) is None
    wait(board, worker, "b", begun=("h/1/5",))
    wait(board, worker, "a", call="b h/1/5", begun=("c/1/0",))
    ((attempt, text),) = failed(board, worker, 2.5 * SETTLE_S).items()
    assert attempt == board.attempt("a")
    assert "actor 'b' waits for lock 'x', which actor 'a' holds" in text
    board.send(worker, m.ActorsResumed(attempts=[attempt]))
    wait(board, worker, "a", keys=(), begun=("c/1/0",))
    assert failed(board, worker, 5.0) == {}


def test_reports_of_a_worker_about_actors_that_it_does_not_have_are_stale(board):
    client = board.client()
    worker = live(board, client, "a")
    stranger = board.worker("stranger")
    n_before = board.state.counters.reports_stale
    wait(board, stranger, "a", call="a nonsense")
    board.send(stranger, m.ActorsResumed(attempts=[board.attempt("a"), 5]))
    assert board.state.counters.reports_stale == n_before + 3
    wait(board, worker, "a", call="a nonsense", begun=("nonsense", "h/x/1", "h/1"))
    assert failed(board, worker, 5.0) == {}


def test_a_cycle_of_actors_is_found_by_the_next_scheduler():
    board = Board(expected=Members(("id of w",), ("alice",)))
    board.state.first_attempt = board.state.next_attempt = 100
    worker = board.come_back(last_epoch=1, kept={"a": 1, "b": 2})
    texts = {"a": ("b", "h/1/5", "c/1/0"), "b": ("a", "h/1/6", "h/1/5")}
    for attempt, (key, (other, call, begun)) in enumerate(texts.items(), 1):
        report = m.ActorsBlocked(
            names=[key], attempts=[attempt], keys=[[]], actors=[[other]], calls=[[call]],
            begun=[[begun]], open=[[begun]],
        )  # fmt: skip
        board.send(worker, report)
    assert failed(board, worker, QUIET_S) == {}  # their client may come back
    client = board.client("alice", last_epoch=1)
    message = graph("a b", made=True, delivered=True)
    message.functions = [m.ACTOR_FUNCTION]
    board.send(client, message, m.Resubmitted())
    assert len(failed(board, worker, 5.0)) == 1


# --- The search -----------------------------------------------------------------------------------


def test_more_than_the_limit_is_not_searched(board, monkeypatch):
    monkeypatch.setattr(cycles, "MAX_SEEN", 1)
    client = board.client()
    worker = start(board, client, "f", "g")
    block(board, worker, "f", "g")
    block(board, worker, "g", "f")
    assert failed(board, worker, 5.0) == {}


def test_the_search_agrees_with_a_slow_one(board, monkeypatch):
    """A node is stuck if it is in the largest set whose members all wait for members."""
    rng = random.Random(1)
    client = board.client()
    board.send(client, graph(" ".join("abcdef")))
    nodes = [board.task(key) for key in "abcdef"]
    n_found = 0
    for _ in range(600):
        table = {
            node: Waits(rng.sample(nodes, rng.randint(1, 3)), rng.random() < 0.5)
            for node in nodes
            if rng.random() < 0.8
        }
        monkeypatch.setattr(cycles, "waits_of", lambda _state, node, t=table: t.get(node))
        stuck = set(table)
        shrinks = True
        while shrinks:
            left = {
                node
                for node in stuck
                if (any if table[node].for_all else all)(x in stuck for x in table[node].nodes)
            }
            shrinks, stuck = left != stuck, left
        for node in nodes:
            found = find_cycle(board.state, node, set(), set())
            assert (found is not None) == (node in stuck)
            if found is None:
                continue
            n_found += 1
            assert stuck.issuperset(found)
            following = [*found[1:], found[0]]
            assert all(b in table[a].nodes for a, b in zip(found, following, strict=True))
            others = [n for n in stuck if n is not node]
            orders = (p for k in range(len(others) + 1) for p in permutations(others, k))
            is_member = any(
                all(b in table[a].nodes for a, b in zip((node, *p), (*p, node), strict=True))
                for p in orders
            )
            assert (found[0] is node) >= is_member
    assert n_found > 100
