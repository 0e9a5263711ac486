"""turns.py: slices of the messages of peers, in turns."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from weft.protocol.wire import messages as m
from weft.protocol.wire.message import Message
from weft.protocol.wire.roles import Role
from weft.scheduler.core.upkeep.turns import (
    FULL_COST,
    LONE_SCALE,
    OWN_SCALE,
    QUANTUM,
    ROOM_COST,
    SHARED_S,
    SLICE_COST,
    WORKER_QUANTUM,
    Turns,
    cost_of,
)

from ...builders import graph

BEAT = m.Heartbeat()


def want(n: int, prefix: str = "k") -> m.WantKeys:
    return m.WantKeys(keys=[f"{prefix}{i}" for i in range(n)])


def served(turns: Turns, n: int = 1_000_000) -> list[int]:
    """Return the peers whose slices come next."""
    peers = []
    while len(peers) < n and (taken := turns.take()) is not None:
        turns.validate()
        peers.append(taken[0])
    return peers


def test_small_messages_come_together_and_in_order():
    turns = Turns()
    sent: list[Message] = [BEAT, want(3), m.ReleaseKeys(keys=["k1"])]
    turns.add(1, Role.CLIENT, sent[:2], 0.0)
    turns.add(1, Role.CLIENT, sent[2:], 0.0)
    assert turns.take() == (1, sent, 1 + 4 + 2)
    assert turns.take() is None
    assert not turns


def test_a_long_message_is_cut_and_its_order_is_kept():
    turns = Turns()
    turns.add(1, Role.CLIENT, [want(100_000), BEAT], 0.0)
    found: list[str] = []
    while (taken := turns.take()) is not None:
        turns.validate()
        _, messages, cost = taken
        assert cost <= SLICE_COST + 1
        for message in messages:
            found += message.keys if isinstance(message, m.WantKeys) else ["beat"]
    assert found == [*want(100_000).keys, "beat"]


def test_short_messages_pass_while_nothing_waits_up_to_the_length_of_a_slice():
    turns = Turns()
    turns.note_active(1, 0.0)
    turns.note_active(2, 0.0)
    assert turns.begin(0.0) == 1
    assert turns.passes(1, Role.CLIENT, [want(SLICE_COST - 11)], 0.0)
    assert turns.passes(2, Role.WORKER, [want(9)], 0.0)
    assert not turns.passes(2, Role.WORKER, [BEAT], 0.0)
    turns.begin(0.0)
    assert turns.passes(2, Role.WORKER, [BEAT], 0.0)


def test_no_message_passes_one_that_waits():
    turns = Turns()
    turns.add(1, Role.CLIENT, [BEAT], 0.0)
    assert not turns.passes(1, Role.CLIENT, [BEAT], 0.0)
    assert not turns.passes(2, Role.CLIENT, [BEAT], 0.0)
    served(turns)
    assert turns.passes(1, Role.CLIENT, [BEAT], 0.0)


def test_the_end_of_a_connection_that_waits_lets_nothing_pass():
    turns = Turns()
    turns.close(1)
    assert not turns.passes(2, Role.CLIENT, [BEAT], 0.0)
    assert turns.take() == (1, [], 0)
    assert turns.passes(2, Role.CLIENT, [BEAT], 0.0)


def test_peers_take_turns():
    turns = Turns()
    for peer in (1, 2):
        turns.add(peer, Role.CLIENT, [want(QUANTUM - 1) for _ in range(3)], 0.0)
    assert served(turns) == [1, 2, 1, 2, 1, 2]


def test_a_peer_that_had_nothing_waiting_is_next():
    turns = Turns()
    turns.add(1, Role.CLIENT, [want(10 * SLICE_COST)], 0.0)
    turns.add(2, Role.CLIENT, [want(10 * SLICE_COST)], 0.0)
    served(turns, 4)
    turns.add(3, Role.CLIENT, [BEAT], 0.0)
    assert served(turns, 1) == [3]


def test_a_peer_that_sends_little_and_often_gains_nothing():
    turns = Turns()
    turns.add(1, Role.CLIENT, [want(QUANTUM - 1) for _ in range(4)], 0.0)
    peers = []
    for _ in range(4):
        turns.add(2, Role.CLIENT, [BEAT], 0.0)
        peers += served(turns, 2)
    assert sorted(peers[:2]) == [1, 2]
    assert peers.count(1) == 4


def test_rows_beyond_a_slice_are_subtracted_later():
    turns = Turns()
    turns.add(1, Role.CLIENT, [want(2 * QUANTUM - 1) for _ in range(50)], 0.0)
    turns.add(2, Role.CLIENT, [want(QUANTUM - 1) for _ in range(100)], 0.0)
    first = served(turns, 60)
    assert abs(first.count(2) - 2 * first.count(1)) <= 2


def test_workers_have_more_handled_than_clients():
    turns = Turns()
    for peer, role in ((1, Role.CLIENT), (2, Role.WORKER)):
        turns.add(peer, role, [want(QUANTUM - 1) for _ in range(400)], 0.0)
    first = served(turns, 100)
    costs = {1: 0, 2: 0}
    for peer in first:
        costs[peer] += 1 if peer == 1 else SLICE_COST // QUANTUM
    assert abs(costs[2] - costs[1] * WORKER_QUANTUM // QUANTUM) <= WORKER_QUANTUM // QUANTUM


def test_slices_are_long_while_one_client_is_active():
    turns = Turns()
    turns.add(1, Role.CLIENT, [want(100_000)], 0.0)
    turns.add(2, Role.WORKER, [want(10)], 0.0)
    turns.add(3, Role.CLIENT, [BEAT], 0.0)
    scale = turns.scale(0.0)
    assert scale == LONE_SCALE
    costs = []
    while (taken := turns.take(scale)) is not None:
        turns.validate()
        costs.append(taken[2])
    assert max(costs) == SLICE_COST * LONE_SCALE * OWN_SCALE + 1


def test_slices_of_a_worker_are_shorter_than_those_of_a_lone_client():
    turns = Turns()
    turns.add(1, Role.WORKER, [want(100_000)], 0.0)
    costs = []
    while (taken := turns.take(turns.scale(0.0))) is not None:
        costs.append(taken[2])
    assert max(costs) == SLICE_COST * LONE_SCALE + 1


def test_slices_are_short_while_two_clients_are_active():
    turns = Turns()
    turns.add(1, Role.CLIENT, [want(100_000)], 0.0)
    turns.take(turns.scale(0.0))
    turns.add(2, Role.CLIENT, [want(1)], 0.5)
    assert turns.scale(0.5) == 1
    while (taken := turns.take(turns.scale(0.5))) is not None:
        turns.validate()
        assert taken[2] <= SLICE_COST + 1


def test_a_client_that_is_sent_something_is_active():
    turns = Turns()
    turns.add(1, Role.CLIENT, [want(1)], 0.0)
    turns.note_active(2, SHARED_S / 2)
    turns.add(1, Role.CLIENT, [want(1)], SHARED_S)
    assert turns.scale(2 * SHARED_S - 0.1) == 1
    turns.add(1, Role.CLIENT, [want(1)], 2 * SHARED_S - 0.1)
    assert turns.scale(2 * SHARED_S + 0.1) == LONE_SCALE


def test_a_client_whose_message_passes_is_active():
    turns = Turns()
    assert turns.passes(1, Role.CLIENT, [want(1)], 0.0)
    assert turns.passes(2, Role.CLIENT, [want(1)], 0.5)
    assert turns.scale(0.5) == 1


def test_a_client_is_active_when_it_is_sent_more_than_heartbeats():
    turns = Turns()
    turns.note_active(1, 0.0)
    turns.note_sent(2, [BEAT, BEAT], 0.1)
    assert turns.scale(0.1) == LONE_SCALE
    turns.note_sent(2, [BEAT, m.KeysUnknown(keys=["x"])], 0.1)
    assert turns.scale(0.1) == 1


def test_the_end_of_a_connection_comes_after_its_messages():
    turns = Turns()
    turns.add(1, Role.CLIENT, [want(3 * SLICE_COST)], 0.0)
    turns.close(1)
    assert turns.waiting() == [1]
    slices = []
    while (taken := turns.take()) is not None:
        slices.append(taken[1])
    assert sum(len(x.keys) for messages in slices for x in messages) == 3 * SLICE_COST
    assert [bool(messages) for messages in slices] == [True] * (len(slices) - 1) + [False]
    assert turns.waiting() == []


def test_the_end_of_a_peer_with_nothing_waiting_comes_at_once():
    turns = Turns()
    turns.close(1)
    assert turns.take() == (1, [], 0)
    assert not turns


def test_the_waiting_messages_of_a_peer_can_be_dropped():
    turns = Turns()
    turns.add(1, Role.CLIENT, [want(SLICE_COST)], 0.0)
    turns.add(2, Role.CLIENT, [BEAT], 0.0)
    turns.drop(1)
    turns.drop(3)
    assert turns.waiting() == [2]
    assert served(turns) == [2]


def test_a_peer_is_full_until_much_of_it_is_handled():
    turns = Turns()
    turns.add(1, Role.CLIENT, [want(FULL_COST)], 0.0)
    assert turns.is_full(1)
    assert not turns.has_room(1)
    left = FULL_COST
    while not turns.has_room(1):
        taken = turns.take()
        assert taken is not None
        left -= taken[2]
    assert ROOM_COST - SLICE_COST - 100 < left <= ROOM_COST
    assert not turns.is_full(2)
    assert turns.has_room(2)


def test_listed_keys_count_and_so_do_the_keys_of_a_request():
    assert cost_of(BEAT) == 1
    assert cost_of(graph("a b c -> d", "d -> e")) == 1 + 5 + 4
    assert cost_of(m.FetchKeys(request=1, keys=["a", "b"])) == 3


def test_a_table_of_functions_is_cut_with_the_rows_that_use_it():
    n = 4 * SLICE_COST
    rows = graph(" ".join(f"k{i}" for i in range(n)))
    ids = [i.to_bytes(16, "big") for i in range(n)]
    rows.functions, rows.function_names, rows.function_blobs = ids, ["f"] * n, [b"f"] * n
    rows.function_of = list(range(n - 1, -1, -1))
    turns = Turns()
    turns.add(1, Role.CLIENT, [rows], 0.0)
    found = []
    while (taken := turns.take()) is not None:
        for part in taken[1]:
            assert isinstance(part, m.SubmitTasks)
            assert len(part.functions) == len(part.function_blobs) == len(part.keys)
            found += [part.functions[i] for i in part.function_of]
    assert found == ids[::-1]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(1, 4), st.integers(0, 30)),
            st.tuples(st.sampled_from(["take", "close"]), st.integers(1, 4), st.just(0)),
        ),
        max_size=60,
    )
)
def test_everything_comes_once_in_the_order_of_its_peer(steps):
    turns = Turns(slice_cost=8)
    sent: dict[int, list[str]] = {peer: [] for peer in range(1, 5)}
    came: dict[int, list[str]] = {peer: [] for peer in range(1, 5)}
    ended: list[int] = []
    closed: list[int] = []

    def take() -> bool:
        taken = turns.take()
        turns.validate()
        if taken is None:
            return False
        peer, messages, _ = taken
        assert peer not in ended
        if not messages:
            ended.append(peer)
        for message in messages:
            assert isinstance(message, m.WantKeys)
            came[peer] += message.keys
        return True

    for n, (action, peer, size) in enumerate(steps):
        if action == "take":
            take()
        elif peer in closed:
            continue
        elif action == "close":
            closed.append(peer)
            turns.close(peer)
        else:
            message = want(size, f"{n}-")
            sent[peer] += message.keys
            turns.add(peer, Role.CLIENT, [message], 0.0)
        turns.validate()
    while take():
        pass
    assert came == sent
    assert sorted(ended) == sorted(closed)
