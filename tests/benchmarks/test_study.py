"""The study plans, counts and draws right, and its workloads refuse wrong results."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from benchmarks.framework import driving
from benchmarks.framework.resident import Peak, resident_bytes
from benchmarks.framework.results import Cell
from benchmarks.framework.supervise import Child
from benchmarks.framework.turns import is_hopeless, joined, turns_of
from benchmarks.framework.work import WrongResult
from benchmarks.study import grid, limits, shapes
from benchmarks.study.__main__ import listing, parse
from benchmarks.study.plots import points_of
from benchmarks.study.systems import (
    SYSTEMS,
    Limit,
    Study,
    computed_by_weft,
    spilled_of_dask,
    spilled_of_weft,
)
from benchmarks.study.table import PARTS, SECTIONS, TABLE, WORKLOADS, spilled

ROOT = Path(__file__).resolve().parents[2]

needs_dask = pytest.mark.skipif(
    importlib.util.find_spec("dask") is None, reason="dask is not installed"
)
needs_matplotlib = pytest.mark.skipif(
    importlib.util.find_spec("matplotlib") is None, reason="matplotlib is not installed"
)


# --- Turns ----------------------------------------------------------------------------------------


def test_systems_take_turns_part_by_part_and_backwards_in_each_other_round() -> None:
    work = {"a": ["x", "y", "z"], "b": ["x", "z"], "c": ["z"]}
    assert list(turns_of(work, [["x", "y"], ["z"]], 2)) == [
        *[("a", ["x", "y"]), ("b", ["x"]), ("a", ["z"]), ("b", ["z"]), ("c", ["z"])],
        *[("b", ["x"]), ("a", ["x", "y"]), ("c", ["z"]), ("b", ["z"]), ("a", ["z"])],
    ]


def test_cell_of_two_turns_has_the_runs_of_both() -> None:
    first = Cell("weft", "x", runs=[1.0], size=3, checksum=6, extra={"peak_mib": [5.0]})
    second = Cell("weft", "x", runs=[2.0], size=3, checksum=7, extra={"peak_mib": [4.0], "k": [1]})
    assert joined(None, first) is first
    both = joined(first, second)
    assert (both.runs, both.checksum, both.size) == ([1.0, 2.0], 7, 3)
    assert both.extra == {"peak_mib": [5.0, 4.0], "k": [1]}
    late = joined(both, Cell("weft", "x", note="it hung"))
    assert (late.runs, late.note, late.size) == ([1.0, 2.0], "it hung", 3)


def test_workload_without_a_figure_is_not_tried_again() -> None:
    cells = {
        ("x", "a"): Cell("a", "x", note="it hung"),
        ("y", "a"): Cell("a", "y", runs=[1.0], note="1 of 3 runs in the time limit"),
    }
    assert is_hopeless(cells, "x", "a")
    assert not is_hopeless(cells, "y", "a")
    assert not is_hopeless(cells, "x", "b")


def test_nothing_is_started_after_the_end_of_the_time() -> None:
    options = argparse.Namespace(repeat=1, limit=5.0, quick=True, ends_at=time.monotonic() - 1)
    cells = driving.run_system(TABLE, "weft", ["tree-1s"], options, driving.Progress(1))
    assert cells["tree-1s", "weft"].note == driving.OVER


def test_workload_that_runs_at_the_end_of_the_time_is_stopped() -> None:
    options = argparse.Namespace(repeat=1, limit=60.0, quick=False, ends_at=time.monotonic() + 0.2)
    cells = driving.run_system(TABLE, "weft", ["independent-1s"], options, driving.Progress(1))
    assert cells["independent-1s", "weft"].note == driving.OVER


# --- Plan -----------------------------------------------------------------------------------------


def test_every_workload_is_in_one_part_and_in_one_section() -> None:
    assert sorted(name for part in PARTS for name in part) == sorted(WORKLOADS)
    rows = [name for section in SECTIONS.values() for name in section.rows]
    assert sorted(rows) == sorted(WORKLOADS)
    assert all(section.title.endswith(": seconds") for section in SECTIONS.values())


def test_workloads_of_dask_s_study_are_there() -> None:
    for length in ("10us", "1ms", "100ms", "1s"):
        for shape in ("independent", "tree", "neighbours", "sequential", "client"):
            assert f"{shape}-{length}" in WORKLOADS
    assert len([name for name in WORKLOADS if name.endswith("-expert")]) == 5
    for kind in ("array-rechunk", "array-matmul", "frame-merge", "frame-apply"):
        assert WORKLOADS[kind].systems == ("weft", "dask", "dask-best")
        assert f"{kind}-small" in WORKLOADS


def test_every_section_has_its_columns_and_every_goal_its_row() -> None:
    for section in TABLE.sections:
        for row in section.rows.values():
            systems = WORKLOADS[row.workload].systems
            assert systems is not None
            assert {*section.systems} - {"limit"} == {*systems} - {"limit"}
    assert {goal.row for goal in TABLE.goals} <= {*WORKLOADS}


def test_list_names_every_workload_and_says_what_a_quick_run_does(capsys) -> None:
    with pytest.raises(SystemExit) as end:
        parse(["--list"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    assert text.strip() == listing()
    assert all(f"  {name} " in text for name in WORKLOADS)
    assert "100 x 0.5 s, 5 slots" in text
    assert "[quick: 10]" in text


def test_quick_run_is_bounded_in_time_and_count(tmp_path: Path) -> None:
    options = parse(["--quick", "--output", str(tmp_path / "found.json")])
    assert (options.repeat, options.plots) == (1, tmp_path)
    assert options.ends_at - time.monotonic() <= 160
    assert len(TABLE.names(None, is_quick=True)) < len(WORKLOADS)
    for group in ("tasks", "grid", "arrays", "small-arrays", "frames", "small-frames", "expert"):
        assert TABLE.names([group], is_quick=True)
    assert TABLE.names(["memory"], is_quick=True) == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--only", "arrays", "no-such"], "no workload is named no-such; --list prints all names"),
        (["--repeat", "0"], "must be positive"),
        (["--limit", "-1"], "must be positive"),
        (["--systems", "spark"], "invalid choice"),
    ],
)
def test_wrong_option_is_refused_with_a_hint(arguments: list[str], text: str, capsys) -> None:
    with pytest.raises(SystemExit) as end:
        parse(arguments)
    assert end.value.code == 2
    assert text in capsys.readouterr().err


# --- Memory and what was spilled ------------------------------------------------------------------


def test_peak_is_the_highest_sum_since_it_was_taken_last() -> None:
    peak = Peak(lambda: [os.getpid()])
    before = peak.take()
    assert before > 5e6
    block = bytearray(os.urandom(2**20) * 64)
    assert peak.take() - before > 0.8 * len(block)


@pytest.mark.slow
def test_peak_between_two_looks_is_seen_by_the_thread(wait_until) -> None:
    with Peak(lambda: [os.getpid()]) as peak:
        before = peak.take()
        block = bytearray(os.urandom(2**20) * 64)
        n_bytes = len(block)
        wait_until(lambda: peak.highest > before + 0.8 * n_bytes)
        del block
        assert peak.take() - before > 0.8 * n_bytes


def test_process_that_has_ended_holds_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    assert resident_bytes(process.pid) == 0


@pytest.mark.slow
def test_processes_that_a_child_has_started_are_among_its_own(wait_until) -> None:
    code = (
        "import subprocess, sys\n"
        "subprocess.Popen([sys.executable, '-c', 'input()'], start_new_session=True,"
        " stdin=subprocess.PIPE).wait()"
    )
    with Child([sys.executable, "-c", code], cwd=ROOT, environment=dict(os.environ)) as child:
        wait_until(lambda: len(child.pids()) == 2)
        assert os.getpid() not in child.pids()


@pytest.mark.slow
def test_memory_of_a_child_is_seen_however_soon_it_has_ended() -> None:
    code = (
        "from benchmarks.framework.child import Reporter\n"
        "report = Reporter()\n"
        "report.ask('start')\n"
        "report('run')"
    )
    deadline = time.monotonic() + 60
    with Child([sys.executable, "-c", code], cwd=ROOT, environment=dict(os.environ)) as child:
        peak = Peak(child.pids)
        assert child.next_event(deadline) == {"event": "start"}
        peak.take()
        child.answer()
        assert child.next_event(deadline) == {"event": "run"}
        assert child.exit_code(10) == 0
        assert peak.take() > 5 << 20


def test_spilled_bytes_of_weft_are_read_where_a_worker_reports_them() -> None:
    def client(*workers: dict[str, Any]) -> Any:
        info = {"workers": {f"tcp://{i}": worker for i, worker in enumerate(workers)}}
        return SimpleNamespace(scheduler_info=lambda: info)

    assert spilled_of_weft(client({"metrics": {"rss": 1}}, {})) is None
    assert spilled_of_weft(client({"metrics": {"spilled_nbytes": 7}}, {"spilled_nbytes": 5})) == 12


def test_bytes_that_dask_has_written_are_summed_over_all_activities() -> None:
    metrics = {
        ("execute", "inc", "disk-write", "bytes"): 7,
        ("gather-dep", "disk-write", "bytes"): 5,
        ("gather-dep", "disk-write", "count"): 2,
        ("get-data", "disk-read", "bytes"): 9,
        "latency": 0.1,
    }
    assert spilled_of_dask(metrics) == 12


def test_time_of_the_tasks_of_weft_is_that_which_its_scheduler_counts() -> None:
    import weft

    with weft.Client(n_workers=1, processes=False) as client:
        client.gather(client.map(abs, range(3)))
        before = computed_by_weft(client)
        client.submit(sum, range(10**6)).result()
        assert computed_by_weft(client) > before > 0


def test_only_what_was_spilled_is_told() -> None:
    cells = {
        ("a", "weft"): Cell("weft", "a", extra={"spilled_mib": [0.0, 0.0]}),
        ("a", "dask"): Cell("dask", "a", extra={"spilled_mib": [0.0, 3.0, 1.0]}),
        ("a", "ray"): Cell("ray", "a"),
    }
    assert spilled(cells) == {("a", "dask"): 3.0}


# --- Limits ---------------------------------------------------------------------------------------


def test_limit_of_tasks_is_their_number_or_their_longest_path() -> None:
    assert limits.time_of_tasks(8, 1, 1.0, 2) == 4
    assert limits.time_of_tasks(9, 1, 1.0, 2) == 5
    assert limits.time_of_tasks(4, 4, 0.5, 2) == 2


def test_limit_of_sums_is_that_of_the_slots_in_the_order_of_submission() -> None:
    assert limits.time_of_sums(2, 2, 1.0) == 2
    # Three waves of tasks and of their sums; the last sum needs those before.
    assert limits.time_of_sums(6, 2, 1.0) == 6
    # One slot: a result waits for the next one.
    assert limits.time_of_sums(2, 1, 1.0) == 3


def test_limit_of_the_grid_is_that_of_the_slots_or_of_the_client() -> None:
    assert limits.time_of_batches(100, 5, 0.5, 0.05) == pytest.approx(10.05)
    # The results of the last wave are taken one after the other.
    assert limits.time_of_steps(100, 5, 0.5, 0.05) == pytest.approx(10.25)
    assert limits.time_of_steps(100, 5, 0.1, 0.05) == pytest.approx(5.1)
    assert limits.time_of_steps(100, 5, 0.5, 0.0) == pytest.approx(10.0)


@pytest.mark.parametrize(
    ("name", "seconds"),
    [
        ("independent-1s", 4),
        ("tree-1s", 8),
        ("neighbours-1s", 7),
        ("sequential-1s", 4),
        ("client-1s", 8),
    ],
)
def test_limit_is_a_system_whose_figures_are_computed(name: str, seconds: float) -> None:
    workload = WORKLOADS[name]
    assert workload.run(Limit(), workload.size).value == seconds


def test_limit_of_each_point_of_the_grid_is_at_least_its_tasks() -> None:
    for name, workload in grid.WORKLOADS.items():
        point = grid.POINTS[name.removeprefix("grid-")]
        limit_s = workload.run(Limit(), point.n_tasks).value
        assert limit_s >= point.n_tasks * point.task_s / point.n_slots + point.step_s


# --- Workloads ------------------------------------------------------------------------------------


class Inline(Study):
    """Runs every call at once, in this thread."""

    title = "inline"
    module = "math"
    #: Added to each result.
    too_much = 0

    def open(self) -> None:
        pass

    def submit(self, function: Any, *args: Any) -> Any:
        return function(*args) + self.too_much

    call = delayed = submit

    def gather(self, handles: Any) -> list[Any]:
        return list(handles)

    def completed(self, handles: Any) -> Any:
        return iter(handles)

    def wait(self, handles: Any) -> None:
        pass

    def value(self, call: Any) -> Any:
        return call

    def batches(self, handles: Any) -> Any:
        return InlineBatches(handles)


class InlineBatches:
    """Batches of one, two, one, ... results."""

    def __init__(self, results: Any) -> None:
        self._results = list(results)
        self._n = 2
        self.add = self._results.append

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> list[Any]:
        if not self._results:
            raise StopIteration
        self._n = 3 - self._n
        batch = self._results[: self._n]
        del self._results[: self._n]
        return batch


class OneTooMuch(Inline):
    """Answers, but always a little too much."""

    too_much = 1


@pytest.mark.parametrize("shape", shapes.SHAPES)
def test_tasks_are_counted_and_a_wrong_result_is_refused(shape: str) -> None:
    workload = WORKLOADS[f"{shape}-10us"]
    for size in (8, 16):
        assert workload.run(Inline(), size).checksum > 0
    with pytest.raises(WrongResult):
        workload.run(OneTooMuch(), 8)


@pytest.mark.parametrize("manner", grid.MANNERS)
def test_client_takes_every_result_of_the_grid_once(manner: str) -> None:
    point = grid.Point(n_slots=2, task_s=0.0, step_s=0.0, manner=manner)
    assert grid.run_grid(Inline(), 9, point=point).checksum == 45
    with pytest.raises(WrongResult):
        grid.run_grid(OneTooMuch(), 9, point=point)


@needs_dask
@pytest.mark.parametrize(
    "name", [n for n in WORKLOADS if n.startswith(("array-", "frame-", "memory-"))]
)
def test_collection_workload_finds_the_known_result(name: str) -> None:
    import dask

    with dask.config.set(scheduler="sync"):
        found = WORKLOADS[name].run(Inline(), 40)
    assert found.value >= 0
    assert found.extra["data_mib"] > 0
    assert ("round_trip_s" in found.extra) == ("access" in name)


@needs_dask
def test_time_of_tasks_is_that_of_the_parts_that_count_on_each_slot() -> None:
    import dask

    class Counting(Inline):
        n_workers, n_threads = 2, 3
        seconds = 0.0

        def computed_s(self) -> float:
            self.seconds += 6.0
            return self.seconds

    with dask.config.set(scheduler="sync"):
        found = WORKLOADS["array-create"].run(Counting(), 40)
    assert found.extra["tasks_s"] == 1.0


@needs_dask
def test_collection_with_a_wrong_value_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import dask
    import dask.array as da

    monkeypatch.setattr(da, "sin", da.cos)
    with dask.config.set(scheduler="sync"), pytest.raises(WrongResult):
        WORKLOADS["array-elementwise"].run(Inline(), 8)


# --- Table and plots ------------------------------------------------------------------------------


def cells_of(figures: dict[tuple[str, str], list[float]]) -> dict[tuple[str, str], Cell]:
    return {
        (name, system): Cell(
            system, name, runs=runs, size=8, extra={"peak_mib": [200.0 for _ in runs]}
        )
        for (name, system), runs in figures.items()
    }


FIGURES = cells_of(
    {
        ("independent-1s", "weft"): [4.01, 4.0, 4.02],
        ("independent-1s", "limit"): [4.0],
        ("independent-10us", "weft"): [0.01],
        ("independent-10us", "dask"): [0.05],
        ("array-access", "weft"): [0.001, 0.001, 0.001],
        ("frame-std", "weft"): [0.9],
        ("frame-std", "dask"): [1.0],
        ("frame-merge", "weft"): [0.6],
        ("frame-merge", "dask"): [1.0],
        ("grid-batch", "weft"): [10.2],
    }
)
FIGURES["array-access", "weft"].extra["round_trip_s"] = [0.0006, 0.0004, 0.0006]
FIGURES["frame-std", "weft"].extra["tasks_s"] = [0.8]
FIGURES["frame-merge", "weft"].extra["tasks_s"] = [0.5]


def test_goals_of_the_study_are_judged() -> None:
    met = {(goal.row, goal.text): goal.is_met(FIGURES) for goal in TABLE.goals}
    assert met["independent-1s", "0.98 of the limit"] is True
    assert met["independent-10us", "0.1 of dask"] is False
    assert met["array-access", "2 round trips"] is True
    assert met["frame-merge", "0.7 of dask"] is True
    assert met["grid-batch", "10.1"] is False
    assert met["tree-1ms", "0.2 of dask"] is None


def test_table_shows_time_and_memory_and_its_figures_are_valid_json() -> None:
    texts = TABLE.render(FIGURES, None, is_quick=False)
    tasks = next(text for text in texts if text.startswith("### Tasks: seconds"))
    assert "8 tasks of 1 s" in tasks
    assert "≥ 0.98 of the limit met" in tasks
    assert any(text.startswith("### Tasks: peak memory, MiB") for text in texts)
    frames = next(text for text in texts if text.startswith("### Data frames of ten columns, four"))
    assert "≤ 0.7 of dask MISSED, tasks alone 0.80 " in frames
    assert "≤ 0.7 of dask met " in frames
    document = json.loads(json.dumps(TABLE.to_json(FIGURES, is_quick=False), allow_nan=False))
    cell = next(c for c in document["cells"] if c["workload"] == "independent-1s")
    assert cell["runs"] == [4.01, 4.0, 4.02]
    assert cell["extra"]["peak_mib"] == [200.0] * 3


def test_points_of_a_plot_are_the_rows_that_have_figures() -> None:
    assert points_of(SECTIONS["tasks"], FIGURES) == {
        "weft": [("independent-10us", [0.01]), ("independent-1s", [4.01, 4.0, 4.02])],
        "dask": [("independent-10us", [0.05])],
        "limit": [("independent-1s", [4.0])],
    }
    assert points_of(SECTIONS["expert"], FIGURES) == {}


DRAW = """
import json, pathlib, sys
from benchmarks.framework.results import Cell
from benchmarks.study.plots import write_plots
from benchmarks.study.table import SECTIONS, TABLE
cells = {(c["workload"], c["peer"]): Cell(**c) for c in json.load(sys.stdin)}
for folder in sys.argv[1:]:
    write_plots(TABLE, SECTIONS, cells, pathlib.Path(folder), is_quick=False)
"""


@pytest.mark.slow
@needs_matplotlib
def test_plots_of_sections_with_figures_are_drawn_and_are_the_same_each_time(
    tmp_path: Path,
) -> None:
    # In a process of its own: matplotlib keeps its fonts open.
    subprocess.run(
        [sys.executable, "-c", DRAW, str(tmp_path / "a"), str(tmp_path / "b")],
        input=json.dumps([dataclasses.asdict(cell) for cell in FIGURES.values()]),
        cwd=ROOT,
        text=True,
        check=True,
    )
    groups = ("tasks", "grid", "arrays", "frames")
    names = {f"study-{group}.svg" for group in groups}
    assert {path.name for path in (tmp_path / "a").iterdir()} == names
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    text = "".join(ET.fromstring((tmp_path / "a" / "study-tasks.svg").read_bytes()).itertext())
    assert "8 tasks of 1 s" in text
    assert SYSTEMS["dask"].title in text
    assert SYSTEMS["ray"].title not in text


# --- Running --------------------------------------------------------------------------------------


@pytest.mark.slow
@needs_dask
def test_study_runs_on_weft_and_writes_all_its_figures(tmp_path: Path) -> None:
    path = tmp_path / "new" / "study.json"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "benchmarks.study", "--quick", "--systems", "weft", "limit"),
            *("--only", "client-1ms", "array-std", "--output", str(path), "--repeat", "2"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(path.read_text())
    cells = {(cell["workload"], cell["peer"]): cell for cell in document["cells"]}
    assert {*cells} == {("client-1ms", "weft"), ("client-1ms", "limit"), ("array-std", "weft")}
    for cell in cells.values():
        assert cell["note"] is None, cell
        assert len(cell["runs"]) == len(cell["extra"]["peak_mib"]) == 2
        assert min(cell["extra"]["peak_mib"]) > 5
    assert cells["client-1ms", "weft"]["median"] > cells["client-1ms", "limit"]["median"]
    assert document["machine"]["cores"] >= 1
    assert "weft" in document["versions"]
    assert "Spilled: nothing" in done.stdout
    if importlib.util.find_spec("matplotlib") is not None:
        assert {p.name for p in path.parent.iterdir()} >= {"study-tasks.svg", "study-arrays.svg"}


@pytest.mark.slow
def test_study_that_is_interrupted_stops_what_it_has_started(tmp_path: Path, wait_until) -> None:
    command = [sys.executable, "-m", "benchmarks.study", "--only", "grid-base", "--systems", "weft"]
    with subprocess.Popen(
        [*command, "--output", str(tmp_path / "study.json")],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        started = psutil.Process(process.pid)
        children: list[psutil.Process] = []

        def has_a_cluster() -> bool:
            with contextlib.suppress(psutil.Error):
                children[:] = started.children(recursive=True)
            return len(children) >= 3 or process.poll() is not None

        wait_until(has_a_cluster)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 130
        assert "interrupted" in errors
        assert "Traceback" not in errors
    assert psutil.wait_procs(children, 60)[1] == []
    assert not (tmp_path / "study.json").exists()
