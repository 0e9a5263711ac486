"""Recordings for tests: one that has everything, and any that hypothesis makes up."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.client.display.test_timeline import timing
from weft.client.insight.recording import MemberChange, Recording, TaskChange

#: When the recordings below begin.
BEGIN = 1_795_802_400.0


def recording() -> Recording:
    """Two workers, of which one goes; tasks that finish, raise, are cancelled, and fetch inputs."""
    at = BEGIN
    return Recording(
        [
            timing(at + 0.2, at + 0.5, "load", key="load-1", span=("night", "a")),
            timing(at + 0.5, at + 0.6, "bad", key="bad-1", is_failed=True, type="ValueError"),
            timing(
                *(at + 0.7, at + 1.5, "total"),
                key=("x", 1),
                worker="w-1",
                thread=1,
                waited=0.25,
                transfer=(at + 0.55, at + 0.65),
                options={"meta": {"run": 7}},
            ),
        ],
        [
            TaskChange(at + 0.1, "queued", "alice", ["load-1", "bad-1", "('x', 1)", "never-1"]),
            TaskChange(at + 0.15, "assigned", "w-0", ["load-1", "bad-1"]),
            TaskChange(at + 0.6, "failed", "", ["bad-1"]),
            TaskChange(at + 0.9, "cancelled", "alice", ["never-1"]),
        ],
        [
            MemberChange(at, "worker", "w-0", "present", {"nthreads": 1, "host": "n 1"}),
            MemberChange(at, "worker", "w-1", "present", {"nthreads": 2, "host": "n2"}),
            MemberChange(at + 1.6, "worker", "w-0", "gone", {"reason": "lost"}),
        ],
        at,
        at + 2.0,
    )


_TIMES = st.floats(BEGIN - 5, BEGIN + 5, width=64)
_NAMES = st.text(max_size=6)
_KEYS = st.one_of(
    st.text(min_size=1, max_size=6).filter(lambda text: text.isprintable()),
    st.tuples(st.text(max_size=3), st.integers(0, 9)),
)


@st.composite
def _timings(draw: st.DrawFn):
    start = draw(_TIMES)
    seconds = draw(st.one_of(st.just(0.0), st.floats(0, 10), st.floats(1e-6, 1e-3)))
    arrived = start - draw(st.floats(0, 2))
    transfer = draw(st.one_of(st.none(), st.just((arrived, start))))
    return timing(
        start,
        start + seconds,
        draw(_NAMES),
        worker=draw(st.sampled_from(["w-0", "w-1", "w 10", "<&>"])),
        thread=draw(st.integers(0, 2)),
        key=draw(_KEYS),
        span=tuple(draw(st.lists(_NAMES, max_size=2))),
        is_failed=draw(st.booleans()),
        type=draw(_NAMES),
        waited=draw(st.floats(0, 1)) * seconds,
        transfer=transfer,
    )


@st.composite
def recordings(draw: st.DrawFn):
    """Any recording."""
    timings = sorted(draw(st.lists(_timings(), max_size=25)), key=lambda one: one.stop)
    kinds = st.sampled_from(["queued", "assigned", "failed", "cancelled", "noted"])
    texts = st.lists(st.sampled_from([str(i) for i in range(9)]), min_size=1, max_size=3)
    changes = st.builds(TaskChange, _TIMES, kinds, _NAMES, texts)
    facts = st.fixed_dictionaries({"nthreads": st.integers(0, 8), "reason": _NAMES})
    words = st.sampled_from(["present", "joined", "away", "back", "leaving", "gone"])
    workers = st.sampled_from(["w-0", "w-1", "w 10"])
    members = st.builds(MemberChange, _TIMES, st.just("worker"), workers, words, facts)
    return Recording(
        timings,
        sorted(draw(st.lists(changes, max_size=10)), key=lambda one: one.time),
        sorted(draw(st.lists(members, max_size=10)), key=lambda one: one.time),
        BEGIN,
        BEGIN + draw(st.floats(0, 20)),
        draw(st.integers(0, 5)),
    )
