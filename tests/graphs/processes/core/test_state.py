"""The core that distributes tasks: with events by hand, and with simulated workers."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.graphs.processes.simulated import World, call_of, encoded_graph
from weft.graphs.core.reading import read_graph
from weft.graphs.drivers.inline import run_inline
from weft.graphs.processes.core.state import (
    CHUNK_NBYTES,
    CHUNK_S,
    DROPS_NBYTES,
    SHOW_S,
    Export,
    ProcessRun,
    Report,
    Revoke,
    SendChunk,
)
from weft.graphs.processes.core.validate import validate


class Hand:
    """A run whose events are made by hand; tasks are called by their keys."""

    def __init__(self, dsk, keys, *, n_workers=2, chunksize=None, is_watched=False):
        encoded = encoded_graph(dsk, keys)
        self.run = ProcessRun(
            encoded.tasks,
            encoded.ready,
            encoded.n_groups,
            n_workers,
            chunksize,
            is_watched=is_watched,
        )
        self.number_of = {task.key: task.number for task in encoded.tasks}
        self.wake = None
        for _ in range(n_workers):
            self.run.add_worker(0.0)

    def decide(self, now=0.0):
        """Return the actions: (worker, action) pairs, with the keys of tasks in chunks."""
        self.wake = self.run.decide(now)
        validate(self.run)
        actions, self.run.out = self.run.out, []
        return [(index, self._shown(action)) for index, action in actions]

    def _shown(self, action):
        key_of = {number: key for key, number in self.number_of.items()}
        if isinstance(action, SendChunk):
            return [task.key for task in action.tasks]
        if isinstance(action, Revoke):
            return "revoke", key_of[action.first]
        if isinstance(action, Report):
            return "report"
        name = "export" if isinstance(action, Export) else "drop"
        return name, [key_of[number] for number in action.numbers]

    def finish(self, worker, *keys, exported=(), sizes=None, each_s=1e-5, n_chunks=0, now=0.0):
        self.run.on_finished(
            worker,
            [self.number_of[key] for key in keys],
            {self.number_of[key]: (f"value of {key}",) for key in exported},
            {self.number_of[key]: size for key, size in (sizes or {}).items()},
            {0: (len(keys), len(keys) * each_s)} if keys else {},
            n_chunks,
            now,
        )
        validate(self.run)

    def give_back(self, worker, *keys):
        self.run.on_returned(worker, [self.number_of[key] for key in keys])
        validate(self.run)


def wide(n, **more):
    """n independent tasks, x0 first."""
    return {f"x{i}": (call_of, i) for i in range(n)} | more, [f"x{i}" for i in range(n)]


# --- Chunks ---------------------------------------------------------------------------------------


def test_first_chunks_are_small_and_later_ones_take_ten_milliseconds():
    hand = Hand(*wide(2000))
    (_, first), (_, other) = hand.decide()
    assert first == ["x0", "x1", "x2", "x3", "x4"]  # 2 ms per task is the guess
    assert len(other) == 5
    hand.finish(0, *first, exported=first, each_s=97e-6, n_chunks=1)
    # Worker 1 has the tasks that it is now known to finish soon.
    assert [index for index, _ in hand.decide()] == [0]
    hand.finish(1, *other, exported=other, each_s=97e-6, n_chunks=1)
    ((_, chunk),) = hand.decide()
    # 97 us and 3 us for everything else.
    assert len(chunk) == pytest.approx(CHUNK_S / 100e-6, abs=1)


def test_a_worker_that_will_soon_be_idle_is_sent_a_second_chunk():
    hand = Hand(*wide(2000), chunksize=10)
    hand.run._durations_s = [0.0005]
    assert [index for index, _ in hand.decide()] == [0, 1, 0, 1]
    hand.run._durations_s = [0.1]
    hand = Hand(*wide(2000), chunksize=10)
    assert [index for index, _ in hand.decide()] == [0, 1]


def test_a_chunk_is_at_most_half_of_the_share_of_ready_tasks():
    hand = Hand(*wide(80), n_workers=4)
    hand.run._durations_s = [1e-6]
    sizes = [len(chunk) for _, chunk in hand.decide()]
    assert sizes == [10, 9, 8, 7, 6, 5, 5, 4]


@pytest.mark.parametrize(("chunksize", "sizes"), [(1, [1, 1, 1, 1]), (7, [7] * 4), (-1, [20, 10])])
def test_chunksize_fixes_the_number_of_tasks(chunksize, sizes):
    hand = Hand(*wide(40), chunksize=chunksize)
    hand.run._durations_s = [1e-6]
    assert [len(chunk) for _, chunk in hand.decide()][: len(sizes)] == sizes


def test_a_chunk_of_large_payloads_is_short():
    hand = Hand(
        {f"x{i}": (call_of, bytes(60_000)) for i in range(1000)}, [f"x{i}" for i in range(1000)]
    )
    hand.run._durations_s = [1e-6]
    (_, chunk), *_ = hand.decide()
    assert len(chunk) == -(-CHUNK_NBYTES // 60_000)


def test_a_worker_that_comes_early_leaves_something_to_the_others():
    hand = Hand(*wide(3), n_workers=1)
    hand.run.n_workers = 3
    assert hand.decide() == [(0, ["x0"])]
    hand.run.add_worker(0.0)
    assert hand.decide() == [(1, ["x1"])]
    # They need not come for the graph to end.
    hand.finish(0, "x0", exported=["x0"], each_s=0.1, n_chunks=1)
    assert hand.decide() == [(0, ["x2"])]


def test_chains_go_on_in_the_worker_where_they_began():
    dsk = {f"a{i}": (call_of, i) for i in range(4)}
    dsk |= {f"b{i}": (call_of, f"a{i}") for i in range(4)}
    dsk |= {f"c{i}": (call_of, f"b{i}") for i in range(4)}
    hand = Hand(dsk, ["c0", "c1", "c2", "c3"])
    assert hand.decide() == [
        (0, ["a0", "b0", "c0"]),
        (1, ["a1", "b1", "c1"]),
        (0, ["a2", "b2", "c2"]),
        (1, ["a3", "b3", "c3"]),
    ]
    tasks = {task.key: task for task in hand.run.tasks}
    # Sent with the task: after b0, no task needs a0.
    assert tasks["b0"].drops == [tasks["a0"].number]
    assert not tasks["a0"].n_open_uses


def test_a_join_goes_on_when_the_last_branch_is_there():
    dsk = {"a": (call_of, 1), "b": (call_of, 2), "ab": (call_of, "a", "b")}
    hand = Hand(dsk, "ab", n_workers=1)
    assert hand.decide() == [(0, ["a"]), (0, ["b", "ab"])]


# --- Values ---------------------------------------------------------------------------------------


def test_a_task_is_kept_for_the_worker_that_holds_most_of_its_inputs():
    dsk = {"big": (call_of, 1), "small": (call_of, 2), "both": (call_of, "big", "small")}
    hand = Hand(dsk, "both")
    assert hand.decide() == [(0, ["big"]), (1, ["small"])]
    hand.finish(0, "big", sizes={"big": 10**9}, n_chunks=1)
    hand.finish(1, "small", sizes={"small": 10**6}, n_chunks=1)
    assert hand.decide() == [(1, ("export", ["small"]))]
    hand.run.on_exported(1, hand.number_of["small"], ("value",))
    assert hand.decide() == [(0, ["both"])]
    hand.finish(0, "both", exported=["both"], n_chunks=1)
    # A drop is sent, because the holder is not the worker where it was used.
    assert hand.run.workers[1].drops == [hand.number_of["small"]]
    assert [task.key for task in hand.run.released] == ["small", "both"]


def test_an_idle_worker_takes_tasks_kept_for_another_if_that_is_worth_it():
    dsk = {"big": (call_of, 1)} | {f"x{i}": (call_of, "big", i) for i in range(6)}
    keys = [f"x{i}" for i in range(6)]
    for size, is_worth_it in ((10**6, True), (10**11, False), (float("inf"), False)):
        hand = Hand(dsk, keys)
        hand.run._durations_s = [0.1]
        assert hand.decide() == [(0, ["big"])]
        hand.finish(0, "big", sizes={"big": size}, each_s=0.1, n_chunks=1)
        actions = hand.decide()
        assert actions[0][0] == 0
        assert ((0, ("export", ["big"])) in actions) is is_worth_it


def test_a_small_value_can_be_used_anywhere():
    dsk = {"a": (call_of, 1)} | {f"x{i}": (call_of, "a", i) for i in range(2)}
    hand = Hand(dsk, ["x0", "x1"])
    hand.run._durations_s = [0.1]
    assert hand.decide() == [(0, ["a"])]
    hand.finish(0, "a", exported=["a"], each_s=0.1, n_chunks=1)
    (_, one), (_, two) = hand.decide()
    assert {*one, *two} == {"x0", "x1"}


def test_a_literal_is_imported_once_by_each_worker():
    big = np.zeros(100_000)
    encoded = encoded_graph(
        {f"x{i}": (call_of, big, i) for i in range(8)}, [f"x{i}" for i in range(8)]
    )
    run = ProcessRun(encoded.tasks, encoded.ready, encoded.n_groups, 2, 2)
    run.add_worker(0.0)
    run.add_worker(0.0)
    run.decide(0.0)
    assert [len(chunk.imports) for _, chunk in run.out] == [1, 1, 0, 0]


def test_drops_of_large_values_are_sent_at_once_and_others_with_the_next_chunk():
    for size, told in ((DROPS_NBYTES + 1, [(0, ("drop", ["x1"]))]), (1000, [])):
        hand = Hand(*wide(2), n_workers=1, chunksize=1)
        hand.run._durations_s = [0.1]
        assert hand.decide() == [(0, ["x0"])]
        slot = hand.run.workers[0]
        slot.drops.append(hand.number_of["x1"])  # as if it were the value of an earlier task
        slot.drops_nbytes = size
        assert hand.decide() == told
        hand.finish(0, "x0", exported=["x0"], n_chunks=1)
        hand.run.decide(0.0)
        ((_, chunk),) = hand.run.out
        assert chunk.drops == ([] if told else [hand.number_of["x1"]])


# --- Revoking -------------------------------------------------------------------------------------


def test_a_late_worker_gives_back_tasks_that_another_could_run():
    hand = Hand(*wide(4), chunksize=2)
    hand.run._durations_s = [0.001]
    assert hand.decide() == [(0, ["x0", "x1"]), (1, ["x2", "x3"])]
    hand.finish(1, "x2", "x3", exported=["x2", "x3"], each_s=0.001, n_chunks=1, now=0.002)
    assert hand.decide(0.002) == []
    assert hand.wake == pytest.approx(0.004, abs=1e-4)
    assert hand.decide(hand.wake) == [(0, ("revoke", "x1"))]
    assert hand.decide(1.0) == []  # it was asked before
    hand.give_back(0, "x1")
    assert hand.decide(1.0) == [(1, ["x1"])]
    # It gets nothing more before it has finished something.
    assert hand.run.workers[0].is_held_up


def test_a_worker_with_much_work_gives_tasks_back_at_once():
    hand = Hand(*wide(20), chunksize=10)
    hand.run._durations_s = [0.001]
    hand.decide()
    hand.finish(1, *[f"x{i}" for i in range(10, 20)], exported=[f"x{i}" for i in range(10, 20)])
    assert hand.decide(0.001) == [(0, ("revoke", "x1"))]
    # Some were started meanwhile.
    hand.give_back(0, *[f"x{i}" for i in range(4, 10)])
    assert hand.decide(0.001) == [(1, [f"x{i}" for i in range(4, 10)])]


def test_a_chain_is_not_given_back_because_no_other_worker_could_run_it():
    dsk = {"x0": (call_of, 0)} | {f"x{i}": (call_of, f"x{i - 1}") for i in range(1, 100)}
    hand = Hand(dsk, "x99")
    hand.run._durations_s = [0.0001]
    ((_, chunk),) = hand.decide()
    assert len(chunk) > 90
    assert hand.decide(0.0001) == []
    # But it is asked what has finished, when it is late.
    assert hand.decide(1.0) == [(0, "report")]


def test_dependents_of_a_finished_task_are_given_back():
    dsk = {"a": (call_of, 1)} | {f"x{i}": (call_of, "a", i) for i in range(3)}
    hand = Hand(dsk, ["x0", "x1", "x2"])
    ((_, chunk),) = hand.decide()
    assert chunk[0] == "a"
    assert len(chunk) == 4
    assert hand.decide(1.0) == [(0, "report")]
    hand.finish(0, "a", exported=["a"], now=1.0)
    assert hand.decide(2.0) == [(0, ("revoke", chunk[2]))]
    hand.give_back(0, *chunk[2:])
    assert hand.decide(2.0)[0] == (1, [chunk[2]])


def test_dependents_of_the_running_task_that_are_given_back_wait_for_it():
    dsk = {"a": (call_of, 1), "b": (call_of, "a"), "c": (call_of, 2)}
    hand = Hand(dsk, ["b", "c"], chunksize=3)
    assert hand.decide() == [(0, ["a", "b", "c"]), (0, ("revoke", "c"))]
    # It had started none of them: everything comes back.
    hand.give_back(0, "a", "b", "c")
    assert not hand.run.workers[0].is_held_up
    assert [task.key for task in hand.run.ready] == ["c", "a"]
    assert hand.decide(1.0)[0] == (0, ["a", "b", "c"])


def test_workers_of_a_watched_run_are_asked_for_reports():
    dsk = {"x0": (call_of, 0)} | {f"x{i}": (call_of, f"x{i - 1}") for i in range(1, 4)}
    hand = Hand(dsk, "x3", n_workers=1, is_watched=True)
    assert hand.decide() == [(0, ["x0", "x1", "x2", "x3"])]
    assert hand.wake == SHOW_S
    assert hand.decide(SHOW_S / 2) == []
    assert hand.decide(SHOW_S) == [(0, "report")]
    assert hand.decide(1.5 * SHOW_S) == []
    hand.finish(0, "x0", "x1", now=1.5 * SHOW_S)
    assert hand.decide(2 * SHOW_S) == []
    assert hand.decide(2.5 * SHOW_S) == [(0, "report")]
    assert hand.wake == 3.5 * SHOW_S
    # It has come to the only one that is left: there is no reason to ask.
    hand.finish(0, "x2", now=3 * SHOW_S)
    assert hand.decide(9 * SHOW_S) == []
    assert hand.wake is None


# --- Everything together --------------------------------------------------------------------------


def world_of(dsk, keys, seed=1, **options):
    world = World(encoded_graph(dsk, keys), Random(seed), **options)
    world.go()
    assert all(world.n_runs[task.number] == 1 for task in world.run.tasks)
    return world


def test_chains_are_run_without_any_export_and_hold_two_values_at_most():
    dsk = {f"x0.{i}": (call_of, i) for i in range(60)}
    dsk |= {f"x{j}.{i}": (call_of, f"x{j - 1}.{i}") for j in range(1, 5) for i in range(60)}
    for seed in range(10):
        world = world_of(dsk, [f"x4.{i}" for i in range(60)], seed, sizes=(10**6,), reporting=0.0)
        assert world.n_exports == 0
        assert max(worker.max_held for worker in world.workers) == 2


@pytest.mark.slow
@pytest.mark.parametrize(("n_workers", "most"), [(1, 24), (2, 96), (4, 160)])
def test_crosstalk_holds_a_front_for_each_stretch_that_went_to_a_worker(n_workers, most):
    """Six layers of 60, tasks that need three neighbours each: 360 values, 60 of them requested.

    Stretches of the first layer go to workers by turns. Between two of them stays what needs values
    of both: a slope of two values a layer on each side, and its copies. So several workers hold
    more than threads, which share one front; the more, the shorter tasks are.
    """
    width, height = 60, 6
    dsk = {f"x0.{i}": (call_of, i) for i in range(width)}
    for j in range(1, height):
        for i in range(width):
            dsk[f"x{j}.{i}"] = (call_of, *[f"x{j - 1}.{(i + d) % width}" for d in range(3)])
    keys = [f"x{height - 1}.{i}" for i in range(width)]
    for durations_s in ((1e-5,), (3e-3,)):
        for sizes in ((1,), (10**6,)):
            world = world_of(dsk, keys, n_workers=n_workers, durations_s=durations_s, sizes=sizes)
            assert world.max_held <= most


def test_a_tree_moves_few_values():
    dsk = {f"x0.{i}": (call_of, i) for i in range(128)}
    for level in range(1, 8):
        for i in range(128 >> level):
            below = (f"x{level - 1}.{2 * i}", f"x{level - 1}.{2 * i + 1}")
            dsk[f"x{level}.{i}"] = (call_of, *below)
    world = world_of(dsk, "x7.0", sizes=(10**6,), durations_s=(1e-4,))
    assert world.n_exports < 40  # of 254


@st.composite
def graphs(draw):
    """Draw a graph and the keys to ask for."""
    n_tasks = draw(st.integers(1, 24))
    dsk = {}
    for n in range(n_tasks):
        n_deps = draw(st.integers(0, min(n, 3)))
        deps = [f"t{draw(st.integers(0, n - 1))}" for _ in range(n_deps)]
        dsk[f"t{n}"] = (call_of, n, *deps)
    n_keys = draw(st.integers(1, 4))
    keys = [f"t{n_tasks - 1}"]
    keys += [f"t{draw(st.integers(0, n_tasks - 1))}" for _ in range(n_keys - 1)]
    return dsk, keys


@given(
    graphs(),
    st.integers(1, 4),
    st.sampled_from([None, None, 1, 3, -1]),
    st.sampled_from([(1e-6,), (1e-6, 0.05), (10.0, 1e-6, 1e-6), (0.003, 0.03)]),
    st.sampled_from([(1,), (1, 1000), (10**9,), (1, float("inf"), 10**6)]),
    st.sampled_from([0.0, 0.3, 1.0]),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_every_task_runs_once_and_nothing_stays(
    graph, n_workers, chunksize, durations_s, sizes, reporting, is_watched, seed
):
    dsk, keys = graph
    world = world_of(
        dsk,
        keys,
        seed,
        n_workers=n_workers,
        chunksize=chunksize,
        durations_s=durations_s,
        sizes=sizes,
        reporting=reporting,
        is_watched=is_watched,
    )
    expected = run_inline(read_graph(dsk, keys))
    assert tuple(world.outputs[key] for key in keys) == expected


def test_rare_things_happen_in_the_simulation():
    n_exports = n_revocations = n_returned = 0
    for seed in range(60):
        rng = Random(seed)
        dsk = {f"t{n}": (call_of, n, *deps_of(rng, n)) for n in range(50)}
        world = world_of(
            dsk, [f"t{n}" for n in range(40, 50)], seed, durations_s=(1e-6, 0.05), sizes=(1, 10**6)
        )
        n_exports += world.n_exports
        n_revocations += world.n_revocations
        n_returned += world.n_returned
    assert n_exports > 20
    assert n_revocations > 20
    assert n_returned > 20


def deps_of(rng, n):
    return [f"t{rng.randrange(max(n - 12, 0), n)}" for _ in range(rng.randint(0, 3) if n else 0)]
