"""rotation.py: turns of users, and of the clients of each."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from weft.protocol.rotation import OF_CLIENT, USER_SHIFT, Rotation, user_of


@dataclass
class Lane:
    n: int = 1


def client(user: int, number: int) -> int:
    return user << USER_SHIFT | number


def rotation_of(*clients: int, level: int = 0) -> Rotation[Lane]:
    rotation: Rotation[Lane] = Rotation()
    for number in clients:
        rotation.enrol(level, number, Lane())
    return rotation


def turn(rotation: Rotation[Lane]) -> int | None:
    """Give a turn; return whose it was."""
    lane = rotation.turn()
    rotation.validate()
    return next((number for (_, number), one in rotation.lanes.items() if one is lane), None)


def test_a_client_without_a_user_is_a_user_of_its_own():
    assert user_of(client(3, 1)) == user_of(client(3, 2)) == 3
    assert len({user_of(1), user_of(2), user_of(client(1, 1)), user_of(client(2, 1))}) == 4
    assert client(3, 7) & OF_CLIENT == 7


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.integers(0, 3), st.integers(1, 60))
def test_each_user_has_its_share_within_one_turn_however_many_clients_it_has(
    n_clients: list[int], n_alone: int, n_turns: int
):
    clients = [client(user, 10 * user + i) for user, n in enumerate(n_clients, 1) for i in range(n)]
    rotation = rotation_of(*clients, *range(1, n_alone + 1))
    had: list[int] = []
    for _ in range(n_turns):
        number = turn(rotation)
        assert number is not None
        had.append(number)
        by_user = Counter(map(user_of, had))
        shares = [by_user[user] for user in {*map(user_of, clients), *range(-n_alone, 0)}]
        assert max(shares) - min(shares) <= 1
        of_clients = Counter(had)
        for user in range(1, len(n_clients) + 1):
            own = [of_clients[number] for number in clients if user_of(number) == user]
            assert max(own) - min(own) <= 1


def test_a_new_user_is_next():
    rotation = rotation_of(client(1, 1), client(2, 2))
    turn(rotation)
    rotation.enrol(0, client(3, 3), Lane())
    assert rotation.has_new_lane
    assert turn(rotation) == client(3, 3)


def test_a_new_client_is_next_among_those_of_its_user_and_cuts_short_no_turn_of_others():
    rotation = rotation_of(client(1, 1), client(2, 2))
    first = turn(rotation)
    assert first == client(2, 2)
    rotation.enrol(0, client(2, 3), Lane())
    assert not rotation.has_new_lane
    assert [turn(rotation) for _ in range(4)] == [
        client(1, 1), client(2, 3), client(1, 1), client(2, 2),
    ]  # fmt: skip


def test_a_new_client_of_the_only_user_is_next_at_once():
    rotation = rotation_of(client(1, 1))
    turn(rotation)
    rotation.enrol(0, client(1, 2), Lane())
    assert rotation.has_new_lane
    assert turn(rotation) == client(1, 2)


def test_a_user_that_ran_empty_gains_nothing_by_coming_back():
    rotation = rotation_of(client(1, 1), client(2, 2), client(3, 3))
    first = turn(rotation)
    assert first is not None
    rotation.lanes[0, first].n = 0
    second = turn(rotation)
    rotation.lanes[0, first].n = 1  # it is there again before its turn
    third = turn(rotation)
    assert {first, second, third} == {client(1, 1), client(2, 2), client(3, 3)}
    assert [turn(rotation) for _ in range(3)] == [first, second, third]


def test_a_user_has_one_turn_also_while_some_of_its_lanes_are_empty():
    rotation = rotation_of(client(1, 1), client(1, 2), client(1, 3), client(2, 4))
    for number in (2, 3):
        rotation.lanes[0, client(1, number)].n = 0
    assert Counter(turn(rotation) for _ in range(8)) == {client(1, 1): 4, client(2, 4): 4}
    assert len(rotation.lanes) == 2


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["push", "empty", "turn", "best", "drop"]),
            st.integers(-1, 1),
            st.integers(0, 2),
            st.integers(1, 3),
        ),
        max_size=60,
    )
)
def test_every_lane_with_items_has_its_turn_and_the_best_level_is_first(steps):
    rotation: Rotation[Lane] = Rotation()
    for what, level, user, number in steps:
        place = level, client(user, number)
        if what == "push":
            if place not in rotation.lanes:
                rotation.enrol(*place, Lane(0))
            rotation.lanes[place].n += 1
        elif what == "empty" and place in rotation.lanes:
            rotation.lanes[place].n = 0
        elif what == "drop" and not any(lane.n for lane in rotation.lanes.values()):
            rotation.drop_lanes()
        full = [place for place, lane in rotation.lanes.items() if lane.n]
        best = min((level for level, _ in full), default=None)
        if what == "best":
            assert rotation.best_level() == best
        elif what == "turn":
            lane = rotation.turn()
            levels = [level for (level, _), one in rotation.lanes.items() if one is lane]
            assert levels == ([] if best is None else [best])
        rotation.validate()
    left = deque(place for place, lane in rotation.lanes.items() if lane.n)
    for _ in range(len(left)):
        lane = rotation.turn()
        assert lane is not None
        lane.n = 0
    assert rotation.turn() is None
