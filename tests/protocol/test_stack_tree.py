"""Sampled stacks as a tree: what is counted is what was added, whatever the bounds."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.protocol.stack_tree import (
    SampledCluster,
    StackFrame,
    StackTree,
    WorkerSamples,
    joined,
    parts_of,
)

CALLS = {
    "a": StackFrame("a"),
    "b": StackFrame("b"),
    "c": StackFrame("a", "x.py", 1),
    "d": StackFrame("a", "x.py", 2),
}
#: Stacks of up to six calls, each of which is a letter.
STACKS = st.lists(st.text("abcd", max_size=6), max_size=20).map(
    lambda texts: [tuple(CALLS[letter] for letter in text) for text in texts]
)
BOUNDS = st.tuples(st.integers(1, 20), st.integers(1, 6))


def tree_of(stacks, *bounds):
    tree = StackTree(*bounds)
    for stack in stacks:
        tree.add(stack)
    return tree


def counted(tree):
    return {tuple(stack): n for stack, n in tree.stacks()}


def of(text):
    """Return a stack: "f a b" is the call of b by a in a task of f."""
    name, *calls = text.split()
    return [StackFrame(name), *(StackFrame(call, "x.py", 1) for call in calls)]


@given(STACKS)
def test_a_tree_with_room_counts_each_stack(stacks):
    assert counted(tree_of(stacks)) == Counter(stacks)


@given(STACKS, BOUNDS)
def test_no_sample_is_lost_where_there_is_no_room(stacks, bounds):
    tree = tree_of(stacks, *bounds)
    assert tree.n_samples == len(stacks)
    assert len(tree) <= bounds[0]
    whole = tree_of(stacks)
    assert tree.n_cut == sum(n for stack, n in counted(whole).items() if stack not in _kept(tree))
    for stack in counted(tree):
        assert len(stack) <= bounds[1]
        assert any(one[: len(stack)] == stack for one in stacks)


def _kept(tree):
    """Return all stacks that have a node."""
    kept = [()]
    for i in range(1, len(tree)):
        kept.append((*kept[tree.parents[i]], tree.frames[i]))
    return {*kept}


@given(STACKS, STACKS)
def test_the_sum_of_trees_is_the_tree_of_all_stacks(first, second):
    tree = tree_of(first)
    tree.merge(tree_of(second))
    assert counted(tree) == Counter(first + second)


@given(STACKS, STACKS)
def test_a_tree_without_an_earlier_one_has_what_came_since(first, second):
    tree = tree_of(first)
    earlier = tree_of(first)
    for stack in second:
        tree.add(stack)
    assert counted(tree.since(earlier)) == Counter(second)


@given(STACKS, BOUNDS)
def test_a_tree_comes_back_from_plain_data(stacks, bounds):
    tree = tree_of(stacks, *bounds)
    again = StackTree.from_plain(joined(parts_of(tree.to_plain())))
    assert counted(again) == counted(tree)
    assert again.n_cut == tree.n_cut


@given(STACKS)
def test_own_samples_add_up_and_totals_count_a_sample_once(stacks):
    rows = tree_of(stacks).totals()
    assert sum(row.n_self for row in rows) == sum(map(bool, stacks))
    for frame, n_self, n_total in rows:
        assert n_self == sum(stack[-1:] == (frame,) for stack in stacks)
        assert n_total == sum(frame in stack for stack in stacks)


@given(STACKS)
def test_the_part_of_a_function_has_the_stacks_that_begin_with_it(stacks):
    wanted = Counter(stack for stack in stacks if stack and stack[0].name == "a")
    assert counted(tree_of(stacks).only("a")) == wanted


def test_functions_are_named_with_their_samples_most_first():
    tree = tree_of([of("f"), of("g a"), of("g a b")])
    assert tree.functions() == {"g": 2, "f": 1}


def test_a_text_is_divided_into_parts_that_fit_into_a_message():
    plain = {"names": ["x" * 150_000]}
    parts = parts_of(plain)
    assert [len(part) < (1 << 16) for part in parts] == [True] * 3
    assert joined(parts) == plain


@pytest.mark.parametrize(
    "change",
    [
        {"parents": [0, 7]},
        {"parents": [0, -1]},
        {"frame_of": [0, True]},
        {"counts": [0]},
        {"counts": [0, 1.5]},
        {"names": []},
        {"n_cut": "1"},
    ],
)
def test_plain_data_that_is_no_tree_is_refused(change):
    plain = tree_of([of("f")]).to_plain()
    with pytest.raises((ValueError, IndexError)):
        StackTree.from_plain({**plain, **change})


def samples(session, *stacks):
    return WorkerSamples(session, tree_of(map(of, stacks)), 0.01)


def test_samples_of_before_the_first_question_do_not_count():
    cluster = SampledCluster()
    cluster.note("w", samples("1", "f old", "f old"))
    assert cluster.total().n_samples == 0
    cluster.note("w", samples("1", "f old", "f old", "f new"))
    assert counted(cluster.total()) == {tuple(of("f new")): 1}


def test_a_worker_that_began_again_adds_to_what_it_had():
    cluster = SampledCluster()
    cluster.note("w", samples("1"))
    cluster.note("w", samples("1", "f a"))
    cluster.note("w", samples("2", "f b"))
    cluster.note("w", samples("2", "f b", "f b"))
    cluster.note("v", samples("3"))
    cluster.note("v", samples("3", "f a"))
    assert counted(cluster.total()) == {tuple(of("f a")): 2, tuple(of("f b")): 2}
    assert counted(cluster.total(["v"])) == {tuple(of("f a")): 1}
    assert cluster.workers == ["w", "v"]


def test_samples_after_a_mark_are_told_apart():
    cluster = SampledCluster()
    cluster.note("w", samples("1"))
    cluster.note("again", samples("2"))
    cluster.note("w", samples("1", "f a"))
    mark = cluster.mark()
    assert cluster.total(since=mark).n_samples == 0
    cluster.note("w", samples("1", "f a", "f a", "f b"))
    cluster.note("again", samples("3", "f c"))
    cluster.note("new", samples("4"))
    cluster.note("new", samples("4", "f d"))
    assert counted(cluster.total(since=mark)) == {
        tuple(of(stack)): 1 for stack in ("f a", "f b", "f c", "f d")
    }
    assert cluster.total(["w"], mark).n_samples == 2


def test_an_answer_of_a_worker_comes_back_from_plain_data():
    tree = tree_of([of("f a")])
    found = WorkerSamples.from_info(WorkerSamples("s", tree, 0.02).to_info())
    assert (found.session, found.interval_s) == ("s", 0.02)
    assert counted(found.tree) == counted(tree)
