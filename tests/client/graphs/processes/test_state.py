"""The core that distributes tasks: with events by hand, and with simulated workers."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from tests.client.graphs.processes.simulated import World, call_of, encoded_graph
from weft.client.graphs.inline import run_inline
from weft.client.graphs.processes.state import Chunk, Export, ProcessRun, Report, Revoke
from weft.client.graphs.processes.validate import validate
from weft.client.graphs.reading import read_graph


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
    st.integers(0, 2**32),
)
def test_every_task_runs_once_and_nothing_stays(
    graph, n_workers, chunksize, durations_s, sizes, reporting, seed
):
    dsk, keys = graph
    world = World(
        encoded_graph(dsk, keys),
        Random(seed),
        n_workers=n_workers,
        chunksize=chunksize,
        durations_s=durations_s,
        sizes=sizes,
        reporting=reporting,
    )
    world.go()
    assert all(world.n_runs[task.number] == 1 for task in world.run.tasks)
    expected = run_inline(read_graph(dsk, keys))
    assert tuple(world.outputs[key] for key in keys) == expected
