"""The graph benchmarks run, count right, judge the goals and draw what they found."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import socket
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.framework import command
from benchmarks.framework.child import refuse_long
from benchmarks.framework.results import Cell, quotient
from benchmarks.framework.work import TooLong, WrongResult
from benchmarks.graphs import shapes
from benchmarks.graphs.goals import GOALS, growth_of_edges, growth_of_submits
from benchmarks.graphs.plots import write_plots
from benchmarks.graphs.systems import SYSTEMS, Bare, BareCalls, Threads, WeftInterpreters
from benchmarks.graphs.table import SECTIONS, TABLE
from benchmarks.graphs.traffic import Traffic
from benchmarks.graphs.workloads import (
    EDGE_POINTS,
    ENGINES,
    TASK_POINTS,
    WORKLOADS,
    _has_lock,
    run_submits,
)

ROOT = Path(__file__).resolve().parents[2]
COMMAND = (sys.executable, "-m", "benchmarks.graphs")

needs_dask = pytest.mark.skipif(
    importlib.util.find_spec("dask") is None, reason="dask is not installed"
)
needs_matplotlib = pytest.mark.skipif(
    importlib.util.find_spec("matplotlib") is None, reason="matplotlib is not installed"
)


def bench(*arguments: str, json_path: Path) -> tuple[int, str, dict[tuple[str, str], Any]]:
    """Run the command with small sizes; return its exit code, output and cells."""
    done = subprocess.run(
        [*COMMAND, "--quick", "--json", str(json_path), *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert json_path.exists(), done.stderr
    cells = json.loads(json_path.read_text())["cells"]
    found = {(cell["workload"], cell["peer"]): cell for cell in cells}
    return done.returncode, done.stdout + done.stderr, found


def assert_all_have_figures(cells: dict[tuple[str, str], Any]) -> None:
    for (name, system), cell in cells.items():
        assert cell["note"] is None, f"{name}, {system}: {cell['note']}\n{cell['log']}"
        assert cell["runs"], f"{name}, {system}"


# --- Running --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_workload_of_weft_runs_and_finds_the_known_result(tmp_path: Path) -> None:
    systems = ["weft-sync", "weft-threaded", "weft-processes", "weft-pool", "weft-own-pool"]
    systems += ["weft-client", "threads", "bare", "bare-calls"]
    code, text, cells = bench("--systems", *systems, json_path=tmp_path / "new" / "bench.json")
    if importlib.util.find_spec("dask") is None:
        cells = {key: cell for key, cell in cells.items() if not key[0].startswith("array")}
    assert_all_have_figures(cells)
    assert code == 0, text
    asked = {(name, s) for name, w in WORKLOADS.items() for s in w.systems if s in systems}
    left_out = {key for key in asked if WORKLOADS[key[0]].quick_size is None}
    assert {key for key in cells if key[0][:5] != "array"} == {
        key for key in asked - left_out if key[0][:5] != "array"
    }


@pytest.mark.slow
@needs_dask
def test_every_workload_of_dask_runs_and_finds_the_known_result(tmp_path: Path) -> None:
    systems = ["dask-sync", "dask-threaded", "dask-processes-kept"]
    code, text, cells = bench("--systems", *systems, json_path=tmp_path / "bench.json")
    assert code == 0, text
    assert_all_have_figures(cells)
    assert cells["limit-pickle", "dask-processes-kept"]["extra"]["is_named"] == [0.0]


@pytest.mark.slow
@needs_matplotlib
def test_plots_are_drawn_where_the_caller_wants_them(tmp_path: Path) -> None:
    folder = tmp_path / "images"
    arguments = ["--only", "sweeps", "--systems", "bare", "--plots", str(folder)]
    code, text, _ = bench(*arguments, json_path=tmp_path / "bench.json")
    assert code == 0, text
    assert {path.name for path in folder.iterdir()} == {"scaling-tasks.svg", "scaling-edges.svg"}


def test_missing_system_is_a_cell_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SYSTEMS["dask-sync"], "module", "no_such_module_of_dask")
    work, left_out = command.plan(
        TABLE, command.parse(["--systems", "dask-sync", "--only", "engines"])
    )
    assert work == {}
    assert left_out["independent", "dask-sync"].note == "no_such_module_of_dask is not installed"


def test_workload_whose_module_is_missing_is_a_cell_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(WORKLOADS["array-compute"], "needs", ("no_such_module",))
    work, left_out = command.plan(
        TABLE, command.parse(["--systems", "weft-threaded", "--only", "engines"])
    )
    assert left_out["array-compute", "weft-threaded"].note == "no_such_module is not installed"
    assert "array-compute" not in work["weft-threaded"]


def test_subinterpreters_are_left_out_where_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    # Not by `delattr`: the module would import it again.
    monkeypatch.setattr("benchmarks.graphs.systems.concurrent.futures", SimpleNamespace())
    assert WeftInterpreters.missing() == "pools of subinterpreters need Python 3.14"


def test_point_that_would_take_too_long_is_refused_by_the_one_before() -> None:
    workload = WORKLOADS["tasks-100000"]
    refuse_long(workload, None)
    refuse_long(workload, (30_000, 5.9))
    with pytest.raises(TooLong, match="about 27 s"):
        refuse_long(workload, (30_000, 8.0))


# --- Graphs and known results ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "n_tasks"),
    [
        (shapes.independent(7), 7),
        (shapes.trivial(1), 1),
        (shapes.trivial(3), 3),
        (shapes.trivial(10), 10),
        (shapes.trivial(11), 15),
        (shapes.crosstalk(6, 1), 24),
        (shapes.crosstalk(6, 10), 24),
    ],
)
def test_shape_has_its_number_of_tasks_and_its_known_result(
    shape: shapes.Shape, n_tasks: int
) -> None:
    tasks = [node for node in shape.graph.values() if isinstance(node, tuple)]
    assert shape.n_tasks == len(tasks) == n_tasks
    assert shapes.bare(shape.graph, shape.keys)() == shape.expected


def test_crosstalk_has_so_many_edges_and_is_the_same_every_time() -> None:
    shape = shapes.crosstalk(5, 3)
    assert [len(node[1]) for node in shape.graph.values() if isinstance(node, tuple)] == [3] * 20
    assert shapes.crosstalk(5, 3) == shape


def test_bare_loop_distinguishes_keys_from_literals() -> None:
    graph = {"a": 1, ("b", 0): (pow, 3, 2), "c": (divmod, ("b", 0), 2), "d": (sum, ["a", ("b", 0)])}
    assert shapes.bare(graph, ["c", "d"])() == [(4, 1), 10]


@needs_dask
def test_bare_execution_of_nodes_needs_no_order_of_the_graph() -> None:
    pytest.importorskip("numpy", reason="numpy is missing: pip install numpy")
    case = shapes.array_sum(20)
    backwards = dict(reversed(case.graph.items()))
    assert [float(value) for value in shapes.bare_nodes(backwards, case.keys)()] == [20.0]


class OneTooMuch(Bare):
    """Answers, but always a little too much."""

    def prepare(self, graph: Any, keys: Any) -> shapes.Run:
        run = super().prepare(graph, keys)
        return lambda: [value + 1 for value in run()]


@pytest.mark.parametrize("name", ["independent", "tasks-10", "edges-2", "limit-lock", "limit-data"])
def test_workload_refuses_a_wrong_result(name: str) -> None:
    if name == "limit-data":
        pytest.importorskip("numpy", reason="numpy is missing: pip install numpy")
    workload = WORKLOADS[name]
    assert workload.run(Bare(), 16).value > 0
    with pytest.raises(WrongResult):
        workload.run(OneTooMuch(), 16)


@needs_dask
def test_array_workload_refuses_a_wrong_result() -> None:
    pytest.importorskip("numpy", reason="numpy is missing: pip install numpy")
    workload = WORKLOADS["array-overhead"]
    assert workload.run(Bare(), 20).value > 0
    with pytest.raises(WrongResult):
        workload.run(OneTooMuch(), 20)


@pytest.mark.parametrize("keeps", [False, True])
def test_submits_refuse_a_pool_that_forgets_one(keeps: bool) -> None:
    class Forgetful(BareCalls):
        def run(self, pool: Any, function: Any, n: int, *, keeps: bool) -> list[Any]:
            return super().run(pool, function, n - 1, keeps=keeps)

    assert run_submits(BareCalls(), 20, keeps=keeps).value > 0
    assert run_submits(Threads(), 20, keeps=keeps).value > 0
    if not keeps and not _has_lock():
        return  # only the variable could tell, and that counts nothing without the lock
    with pytest.raises(WrongResult):
        run_submits(Forgetful(), 20, keeps=keeps)


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="the system does not count bytes")
def test_traffic_counts_pipes_and_sockets_each_once() -> None:
    n = 10_000
    left, right = socket.socketpair()
    reader, writer = os.pipe()
    with left, right, open(reader, "rb") as read_end, open(writer, "wb") as write_end:
        with Traffic() as traffic:
            left.sendall(bytes(n))
            n_read = len(right.recv(n, socket.MSG_WAITALL))
            os.write(write_end.fileno(), bytes(n))
            n_read += len(os.read(read_end.fileno(), n))
        left.sendall(bytes(n))
        assert n_read == 2 * n
    assert traffic.n_bytes is not None
    # A little is added by the look at the counters themselves.
    assert 4 * n <= traffic.n_bytes < 4 * n + 2_000
    assert not set(vars(socket.socket)) & {"send", "sendall", "recv", "recv_into"}


def test_unpicklable_argument_is_not_mistaken_for_another_error() -> None:
    class Broken(Bare):
        def get(self, graph: Any, keys: Any) -> Any:
            raise ValueError("out of luck")

    class Careless(Bare):
        def get(self, graph: Any, keys: Any) -> Any:
            return [0] * len(keys)

    workload = WORKLOADS["limit-pickle"]
    with pytest.raises(ValueError, match="out of luck"):
        workload.run(Broken(), 4)
    with pytest.raises(WrongResult):
        workload.run(Careless(), 4)


# --- Goals and tables -----------------------------------------------------------------------------


def cells_of(figures: dict[tuple[str, str], float]) -> dict[tuple[str, str], Cell]:
    return {
        (name, system): Cell(system, name, runs=[value] * 3, extra={"n_tasks": [2_000.0] * 3})
        for (name, system), value in figures.items()
    }


FIGURES = cells_of(
    {
        ("independent", "weft-sync"): 4.5,
        ("independent", "weft-threaded"): 5.0,
        ("independent", "dask-threaded"): 55.0,
        ("edges-10", "weft-threaded"): 20.0,
        ("edges-50", "weft-threaded"): 100.0,
        ("edges-100", "weft-threaded"): 200.0,
        ("edges-10", "dask-threaded"): 152.0,
        ("submits-10000", "weft-pool"): 2.0,
        ("submits-100000", "weft-pool"): 2.6,
        ("submits-100000", "threads"): 13.0,
    }
)


def test_goals_are_judged_by_their_direction_and_unmeasured_ones_are_open() -> None:
    met = {(goal.row, goal.text): goal.is_met(FIGURES) for goal in GOALS}
    assert met["independent", "4 sync"] is False
    assert met["independent", "6 threaded"] is True
    assert met["independent", "30 processes"] is None
    assert met["edges-10", "10 x dask threaded"] is False
    assert met["edges-growth", "1.5 threaded"] is True
    assert met["submits-10000", "2.4 weft.ThreadPool"] is True
    assert met["submits-100000", "2.4 weft.ThreadPool"] is False
    assert met["submits-growth", "1.25 weft.ThreadPool"] is False
    assert met["array-overhead", "8 x dask"] is None


def test_derived_figures_are_computed_from_measured_ones() -> None:
    assert growth_of_edges(FIGURES, "weft-threaded") == 1
    assert growth_of_edges(FIGURES, "dask-threaded") is None
    quadratic = cells_of({(f"edges-{n}", "bare"): float(n * n) for n in EDGE_POINTS})
    assert growth_of_edges(quadratic, "bare") == 2.5
    assert growth_of_submits(FIGURES, "weft-pool") == 1.3
    assert (
        quotient(FIGURES, ("independent", "dask-threaded"), ("independent", "weft-threaded")) == 11
    )
    nothing_left = cells_of(
        {("array-overhead", "weft-threaded"): -0.1, ("array-overhead", "dask-threaded"): 40.0}
    )
    assert all(goal.is_met(nothing_left) for goal in GOALS if goal.row == "array-overhead")
    json.dumps(TABLE.to_json(nothing_left, is_quick=False), allow_nan=False)


def test_table_shows_goals_factors_quotations_and_reasons() -> None:
    cells = FIGURES | {("independent", "weft-processes"): Cell("weft-processes", "independent")}
    cells["independent", "weft-processes"].note = "it hung"
    text, pools = TABLE.render(cells, ["engines", "pools", "limits"], is_quick=False)
    assert text.startswith("### Graph engines\n\n| workload")
    assert "≤ 4 sync MISSED, ≤ 6 threaded met, ≤ 30 processes ?" in text
    assert "| 55 ±0% (11x) |" in " ".join(text.split())
    assert "- [1]" in text
    assert "[1] it hung" in text
    assert "JobSchedulers.jl *" in pools
    assert "* another machine" in pools
    assert "13 ±0% (5x)" in pools
    (quick,) = TABLE.render(cells, ["pools"], is_quick=True)
    assert "another machine" not in quick
    assert "goal" not in quick


def test_every_workload_has_a_row_and_every_goal_too() -> None:
    rows = {name: row for section in SECTIONS for name, row in section.rows.items()}
    assert {row.workload for row in rows.values()} == set(WORKLOADS)
    assert {goal.row for goal in GOALS} <= set(rows)
    for section in SECTIONS:
        for row in section.rows.values():
            assert set(WORKLOADS[row.workload].systems) & set(section.systems)
    assert {s for w in WORKLOADS.values() for s in w.systems} == set(SYSTEMS)


def test_quick_runs_leave_out_workloads_without_a_small_size() -> None:
    assert "tasks-100000" in TABLE.names(["sweeps"], is_quick=False)
    assert "tasks-100000" not in TABLE.names(["sweeps"], is_quick=True)
    assert "edges-100" in TABLE.names(["sweeps"], is_quick=True)


def test_engines_bring_the_points_of_the_sweeps_that_their_table_shows() -> None:
    names = TABLE.names(["engines"], is_quick=False)
    assert {"tasks-10000", "edges-10", "edges-50", "edges-100"} <= set(names)
    assert "edges-20" not in names
    both = TABLE.names(["engines", "sweeps"], is_quick=False)
    points = [WORKLOADS[n].point for n in both if WORKLOADS[n].sweep == "tasks"]
    assert points == list(TASK_POINTS)


def test_plots_belong_to_full_runs_only() -> None:
    assert command.parse([]).plots == command.PLOTS == ROOT / "docs" / "images"
    for arguments in (["--quick"], ["--systems", "bare"], ["--repeat", "1"]):
        assert command.parse(arguments).plots is None
    with pytest.raises(SystemExit):
        command.parse(["--repeat", "0"])


# --- Plots ----------------------------------------------------------------------------------------

SVG = "{http://www.w3.org/2000/svg}"


def sweep_cells() -> dict[tuple[str, str], Cell]:
    names = [f"tasks-{n}" for n in TASK_POINTS] + [f"edges-{n}" for n in EDGE_POINTS]
    cells = cells_of({(name, s): 10.0 for name in names for s in (*ENGINES, "bare")})
    cells["tasks-100000", "dask-processes"] = Cell("dask-processes", "tasks-100000")
    cells["tasks-100000", "dask-processes"].note = "not run: about 28 s, by the point before"
    return cells


DRAW = """
import json, pathlib, sys
from benchmarks.graphs.plots import write_plots
from benchmarks.framework.results import Cell
cells = {(c["workload"], c["peer"]): Cell(**c) for c in json.load(sys.stdin)}
for folder in sys.argv[1:]:
    write_plots(cells, pathlib.Path(folder))
"""


def draw(cells: dict[tuple[str, str], Cell], *folders: Path) -> None:
    """Call `write_plots` in a process of its own: matplotlib keeps its fonts open."""
    subprocess.run(
        [sys.executable, "-c", DRAW, *map(str, folders)],
        input=json.dumps([dataclasses.asdict(cell) for cell in cells.values()]),
        cwd=ROOT,
        text=True,
        check=True,
    )


@pytest.mark.slow
@needs_matplotlib
def test_plots_are_small_svgs_that_name_every_engine_and_the_points_left_out(
    tmp_path: Path,
) -> None:
    draw(sweep_cells(), tmp_path / "a", tmp_path / "b")
    paths = [tmp_path / "a" / f"scaling-{sweep}.svg" for sweep in ("tasks", "edges")]
    for path in paths:
        data = path.read_bytes()
        assert len(data) < 150_000
        assert b"<dc:date>" not in data
        assert data == (tmp_path / "b" / path.name).read_bytes()
        root = ET.fromstring(data)
        assert root.tag == f"{SVG}svg"
        words = {text.text for text in root.iter(f"{SVG}text")}
        assert {SYSTEMS[system].title for system in (*ENGINES, "bare")} <= words
        assert {"Whole graph", "seconds"} <= words
    assert "dask processes, 100 000 tasks: not run: about 28 s" in paths[0].read_text()
    assert "not run" not in paths[1].read_text()


def test_without_a_sweep_there_is_no_plot(tmp_path: Path) -> None:
    assert write_plots({}, tmp_path / "none") == []
    assert not (tmp_path / "none").exists()
