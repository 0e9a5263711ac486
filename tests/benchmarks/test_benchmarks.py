"""The benchmarks run, count right, and survive whatever a system does to them."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from benchmarks import (
    bench_questions,
    bench_scheduler,
    full_memory,
    larger_than_memory,
    one_host,
    scaling,
    viewers,
)
from benchmarks.clusters import granularity
from benchmarks.clusters.systems import SYSTEMS, Floor
from benchmarks.clusters.table import GOALS, TABLE
from benchmarks.clusters.workloads import WORKLOADS
from benchmarks.framework import command, driving, supervise
from benchmarks.framework.results import Cell, show, spread_of
from benchmarks.framework.supervise import Child, TimedOut
from benchmarks.framework.table import TABLES, Goal, load
from benchmarks.framework.work import TooLong, WrongResult
from benchmarks.jobs.workloads import WORKLOADS as JOBS
from benchmarks.tasks import map_inside
from weft.scheduler.core.features import FEATURES

ROOT = Path(__file__).resolve().parents[2]


def bench(
    *arguments: str, json_path: Path
) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.run", "--quick", "--json", str(json_path), *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    document: dict[str, Any] = json.loads(json_path.read_text()) if json_path.exists() else {}
    return done, document


def child(code: str) -> Child:
    return Child([sys.executable, "-c", code], cwd=ROOT, environment=dict(os.environ))


def soon() -> float:
    return time.monotonic() + 60


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [["benchmarks.run", "--systems", "weft", "--quick"], ["benchmarks.scaling", "idle"]],
    ids=["the framework", "the idle cluster"],
)
def test_processes_of_a_benchmark_end_with_it_when_it_is_terminated(
    tmp_path, wait_until, arguments
):
    if arguments[0] == "benchmarks.run":
        arguments = [*arguments, "--json", str(tmp_path / "bench.json")]
    with subprocess.Popen(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        started = psutil.Process(process.pid)
        children: list[psutil.Process] = []

        def has_started() -> bool:
            # Not git, of which the framework asks the version.
            for child in started.children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    if child not in children and Path(child.exe()) == Path(started.exe()):
                        children.append(child)
            return bool(children) or process.poll() is not None

        wait_until(has_started)
        assert children
        assert process.poll() is None
        process.terminate()
        assert process.wait(60) == 143
    assert psutil.wait_procs(children, 60)[1] == []


@pytest.mark.slow
def test_every_workload_of_weft_runs_and_finds_the_known_result(tmp_path: Path) -> None:
    done, document = bench("--peers", "weft", "threads", json_path=tmp_path / "bench.json")
    cells = {(cell["workload"], cell["peer"]): cell for cell in document["cells"]}
    assert {name for name, peer in cells if peer == "weft"} == set(WORKLOADS)
    for (name, peer), cell in cells.items():
        if peer == "weft":
            assert cell["note"] is None, f"{name}: {cell['note']}\n{cell['log']}"
            # What viewers cost is the rest after a subtraction.
            assert cell["median"] >= 0 or name == "viewers"
    assert done.returncode == 0, done.stderr
    assert document["ratios_weft_to_peer"]["map"]["threads"] > 0


@pytest.mark.slow
def test_every_kind_of_job_runs_on_weft_and_finds_the_known_result(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    done, document = bench("--table", "jobs", "--peers", "weft", json_path=path)
    cells = {cell["workload"]: cell for cell in document["cells"]}
    assert {*cells} == {*JOBS}
    for name, cell in cells.items():
        assert cell["note"] is None, f"{name}: {cell['note']}\n{cell['log']}"
        assert cell["median"] > 0
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_pools_and_floor_run_and_the_table_names_workloads_that_they_cannot_run(
    tmp_path: Path,
) -> None:
    done, document = bench(
        *("--peers", "processes", "floor", "--only", "map", "round-trip", "chain", "as-completed"),
        json_path=tmp_path / "new" / "bench.json",
    )
    assert done.returncode == 0, done.stderr
    found = {(cell["workload"], cell["peer"]): cell for cell in document["cells"]}
    assert found.pop(("chain", "processes"))["note"] == "no tasks that depend on tasks"
    assert found["chain", "floor"]["checksum"] == 50
    assert all(cell["note"] is None and cell["median"] > 0 for cell in found.values())
    assert "ProcessPool" in done.stdout
    assert "[1] no tasks that depend on tasks" in done.stdout
    assert document["machine"]["cores"] >= 1


class WrongShared:
    """A lock that is not to be had, and a queue or variable with another value."""

    def acquire(self) -> bool:
        return False

    def release(self) -> None:
        pass

    def put(self, value: int) -> None:
        self.value = value + 1

    set = put

    def get(self) -> int:
        return self.value


@pytest.mark.parametrize("name", [n for n, w in WORKLOADS.items() if w.needs_open])
def test_workload_refuses_a_wrong_result(name: str) -> None:
    class Wrong(Floor):
        """Answers, but always a little too much."""

        def open(self) -> None:
            pass

        def gather(self, handles: Any) -> list[Any]:
            return [handle + 1 for handle in handles]

        def completed(self, handles: Any) -> Any:
            return (handle + 1 for handle in handles)

        def addresses(self) -> list[str]:
            return ["here", "there"]

        def submit_at(self, address: str, function: Any, *args: Any) -> Any:
            return self.submit(function, *args)

        def call(self, function: Any, *args: Any) -> Any:
            # There is no task here, and so no client of one.
            return (0 if function is map_inside else function(*args)) + 1

        async def awaited(self, function: Any, n: int) -> tuple[float, list[Any]]:
            return 1.0, [function(i) + 1 for i in range(n)]

        def executor(self) -> Any:
            return SimpleNamespace(map=lambda function, numbers: [function(i) + 1 for i in numbers])

        def parallel(self, function: Any, n: int) -> list[Any]:
            return [function(i) + 1 for i in range(n)]

        def shared(self, kind: str) -> Any:
            return WrongShared()

        def actor(self, cls: type) -> Any:
            return SimpleNamespace(call=lambda: 2, calls=lambda n: [2] * n)

    with pytest.raises(WrongResult):
        WORKLOADS[name].run(Wrong(), 8)


@pytest.mark.parametrize("overhead_s", [0.0001, 0.0007, 0.006])
@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_search_finds_the_length_at_which_half_of_the_time_is_useful(
    overhead_s: float, noise: float
) -> None:
    lengths = []

    def efficiency(length_s: float) -> float:
        lengths.append(length_s)
        factor = 1 + noise * (-1) ** len(lengths)
        return length_s / (length_s + overhead_s * factor)

    length_s, found = granularity.find_metg(efficiency, granularity.FIRST_LENGTH_S)
    assert length_s == pytest.approx(overhead_s, rel=0.1 + 2 * noise)
    assert found == pytest.approx(0.5, abs=0.1)
    assert len(lengths) <= granularity.MAX_POINTS


def test_search_ends_where_tasks_would_have_to_be_too_long() -> None:
    with pytest.raises(TooLong, match="above 30000 us"):
        granularity.find_metg(lambda length_s: length_s / (length_s + 1.0), 0.001)


@pytest.mark.parametrize("shape", granularity.SHAPES)
def test_short_tasks_of_each_shape_reach_a_part_of_the_ideal_rate(shape: str) -> None:
    sample = WORKLOADS[f"{shape}-100us"].run(Floor(), 64)
    # One thread is not faster than two workers that cost nothing.
    assert 0 < sample.extra["efficiency"] <= sample.extra["of_ideal"] <= 1
    assert sample.extra.keys() == {"efficiency", "of_ideal", "others_us"}


@pytest.mark.parametrize(
    ("row", "extra", "figure", "is_met"),
    [
        ("fork-join-1ms-ideal", "of_ideal", 0.89, False),
        ("fork-join-1ms-ideal", "of_ideal", 0.91, True),
        ("stencil-1ms-ideal", "of_ideal", 0.86, True),
        ("stencil-100us-ideal", "of_ideal", 0.44, False),
        ("tree-1ms-others", "others_us", 170.0, True),
        ("tree-1ms-others", "others_us", 180.0, False),
    ],
)
def test_short_tasks_are_judged_by_what_their_shape_permits(
    row: str, extra: str, figure: float, is_met: bool
) -> None:
    workload = row.rpartition("-")[0]
    cells = {(workload, "weft"): Cell("weft", workload, runs=[1.0], extra={extra: [figure]})}
    (goal,) = [goal for goal in GOALS if goal.row == row]
    assert goal.is_met(cells) is is_met
    (text,) = TABLE.render(cells, None, is_quick=False)
    (line,) = [x for x in text.splitlines() if show(figure) in x]
    assert ("MISSED" in line) is not is_met


@pytest.mark.parametrize("shape", bench_scheduler.SHAPES)
def test_scheduler_alone_finishes_every_task_and_forgets_all(shape: str) -> None:
    # More than one batch, so that submissions and answers interleave.
    outcome = bench_scheduler.run(n_tasks=10_000, n_workers=3, shape=shape)
    assert outcome.n_finished == 10_000
    assert outcome.seconds > 0


def test_questions_are_all_measured() -> None:
    pages = bench_questions.measure(bench_questions.Cluster(n_tasks=5000, n_workers=3))
    questions = {name for feature in FEATURES for name in feature.questions}
    assert pages.keys() == {*questions, "held (passed on)"}
    assert all(min(seconds) >= 0 for seconds in pages.values())


def test_missing_system_is_a_cell_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SYSTEMS["ray"], "module", "no_such_module_of_ray")
    work, left_out = command.plan(TABLE, command.parse(["--peers", "ray", "--only", "map"]))
    assert work == {}
    assert left_out["map", "ray"].note == "no_such_module_of_ray is not installed"


def test_big_map_of_a_slow_peer_needs_its_name_and_its_cell_estimates_the_time() -> None:
    work, left_out = command.plan(TABLE, command.parse(["--only", "big-map"]))
    assert set(work) == {"weft", "threads", "floor"}
    slow = Cell("processes", "map", runs=[5_000.0])
    cells = {("map", "processes"): slow, ("big-map", "processes"): left_out["big-map", "processes"]}
    command.explain_too_slow(TABLE, cells, is_quick=False)
    note = cells["big-map", "processes"].note
    assert note is not None
    assert "--peers processes" in note
    assert "about 3 min" in note
    work, _ = command.plan(TABLE, command.parse(["--only", "big-map", "--peers", "processes"]))
    assert work == {"processes": ["big-map"]}


def test_child_that_hangs_is_stopped_with_all_that_it_started() -> None:
    # The grandchild leaves the process group, as daemons do.
    code = (
        "import json, subprocess, sys, time\n"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'],"
        " start_new_session=True)\n"
        "print('no report', flush=True)\n"
        "print(json.dumps({'event': 'start', 'pid': p.pid}), flush=True)\n"
        "time.sleep(600)\n"
    )
    with child(code) as hanging:
        event = hanging.next_event(soon())
        assert event is not None
        grandchild = psutil.Process(event["pid"])
        with pytest.raises(TimedOut):
            hanging.next_event(time.monotonic() + 0.05)
    assert not grandchild.is_running() or grandchild.status() == psutil.STATUS_ZOMBIE


def test_child_that_dies_is_reported_with_its_last_words() -> None:
    with child("import sys; print('out of luck', file=sys.stderr); sys.exit(3)") as dying:
        assert dying.next_event(soon()) is None
        assert dying.exit_code(60) == 3
        assert "out of luck" in dying.log_tail()


@pytest.mark.parametrize(
    ("code", "note"),
    [
        ("import os; os._exit(7)", "the process ended early (exit code 7)"),
        ("import time; time.sleep(600)", "no end within 0 s"),
    ],
)
def test_system_that_does_not_come_up_costs_its_cells_only(
    monkeypatch: pytest.MonkeyPatch, code: str, note: str
) -> None:
    started = []

    def broken(arguments: Any, **kwargs: Any) -> Child:
        started.append(arguments)
        return Child([sys.executable, "-c", code], **kwargs)

    monkeypatch.setattr(driving, "Child", broken)
    monkeypatch.setattr(driving, "GRACE_S", 5.0)
    options = command.parse(["--limit", "30" if "exit" in code else "0.05"])
    names = ["map", "chain"]
    cells = driving.run_system(TABLE, "weft", names, options, driving.Progress(len(names)))
    assert [cells[name, "weft"].note for name in names] == [note, note]
    assert len(started) == 1


def test_failure_in_one_workload_leaves_the_others_their_figures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reports: dict[str, list[dict[str, Any]]] = {
        "map": [{"event": "start", "workload": "map"}, {"event": "open"}],
        "chain": [
            {"event": "start", "workload": "chain"},
            {"event": "open"},
            {"event": "run", "value": 5.0, "checksum": 1, "extra": {"a": 2.0}, "size": 9},
            {"event": "end"},
        ],
    }

    def scripted(arguments: Any, **kwargs: Any) -> Child:
        lines = [json.dumps(event) for event in reports[arguments[5]]]
        return Child([sys.executable, "-c", f"print({chr(10).join(lines)!r})"], **kwargs)

    monkeypatch.setattr(driving, "Child", scripted)
    options = command.parse(["--quick"])
    cells = driving.run_system(TABLE, "weft", ["map", "chain"], options, driving.Progress(2))
    assert cells["map", "weft"].note == "the process ended early (exit code 0)"
    assert cells["chain", "weft"].note is None
    assert cells["chain", "weft"].runs == [5.0]
    assert cells["chain", "weft"].extra == {"a": [2.0]}


@pytest.mark.parametrize(
    ("arguments", "tables"),
    [
        ([], ["clusters", "graphs", "jobs"]),
        (["--only", "map"], ["clusters"]),
        (["--peers", "threads"], ["clusters"]),
        (["--peers", "bare", "threads"], ["graphs"]),
        (["--table", "graphs", "--peers", "threads"], ["graphs"]),
        (["--only", "limits"], ["graphs"]),
    ],
)
def test_all_tables_are_run_unless_something_is_picked(
    arguments: list[str], tables: list[str]
) -> None:
    options = command.parse(arguments)
    assert [table.name for table in options.tables] == tables
    name = "bench.json" if tables[0] == "clusters" else "bench-graphs.json"
    assert options.json == ROOT / "build" / name


def test_workload_that_is_in_no_table_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.parse(["--only", "map", "limits"])
    assert "no table has all of map, limits" in capsys.readouterr().err


def test_tables_are_printed_one_after_the_other_and_written_to_one_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run_table(table: Any, options: Any) -> command.Outcome:
        is_complete = table.name == "clusters"
        return command.Outcome(f"THE {table.name}", {"cells": [table.name]}, is_complete)

    monkeypatch.setattr(command, "run_table", run_table)
    path = tmp_path / "bench.json"
    assert command.main(["--json", str(path), "--repeat", "4"]) == 1
    out = capsys.readouterr().out
    assert 0 < out.index("THE clusters") < out.index("THE graphs")
    document = json.loads(path.read_text())
    assert document["cells"] == ["clusters"]
    assert document["graphs"] == {"cells": ["graphs"]}
    assert document["options"]["repeat"] == 4
    assert command.main(["--json", str(path), "--only", "map"]) == 0


def test_ratio_above_one_always_means_that_weft_is_faster() -> None:
    cells = {
        ("map", "weft"): Cell("weft", "map", runs=[100.0, 300.0, 200.0]),
        ("map", "dask"): Cell("dask", "map", runs=[10.0]),
        ("round-trip", "weft"): Cell("weft", "round-trip", runs=[0.5]),
        ("round-trip", "dask"): Cell("dask", "round-trip", runs=[10.0]),
        ("chain", "weft"): Cell("weft", "chain", runs=[10.0]),
        ("chain", "dask"): Cell("dask", "chain", note="it hung"),
    }
    assert spread_of(cells["map", "weft"].runs) == 0.5
    document = TABLE.to_json(cells, is_quick=False)
    assert document["ratios_weft_to_peer"] == {"map": {"dask": 20}, "round-trip": {"dask": 20}}


@pytest.mark.parametrize(
    ("found", "text"),
    [(10.13, "≤ 10.1 MISSED at 10.13"), (10.0996, "≤ 10.1 met at 10.1"), (11, "≤ 10.1 MISSED")],
)
def test_a_figure_that_looks_like_its_bound_stands_beside_it(found: float, text: str) -> None:
    assert Goal("row", "10.1", 10.1, lambda cells: found).render({}) == text


def test_goals_are_judged_by_their_direction_and_unmeasured_ones_are_not_met() -> None:
    cells = {
        ("map", "weft"): Cell("weft", "map", runs=[100_000.0]),
        ("map", "dask-best"): Cell("dask-best", "map", runs=[5_000.0]),
        ("round-trip", "weft"): Cell("weft", "round-trip", runs=[0.4]),
        ("big-map", "weft"): Cell(
            "weft", "big-map", runs=[50_000.0], extra={"scheduler_bytes_per_task": [1100.0, 1.0]}
        ),
    }
    met = {(goal.row, goal.text): goal.is_met(cells) for goal in GOALS}
    assert met["map", "60 000"] is True
    assert met["map", "25 x dask best"] is False
    assert met["round-trip", "0.5"] is True
    assert met["big-map", "0.7 of the small map"] is False
    assert met["big-map", "1 200 B/task"] is True
    assert met["chain", "20 000"] is None
    (text,) = TABLE.render(cells, None, is_quick=False)
    assert "≥ 60 000 met, ≥ 25 x dask best MISSED" in text


@pytest.mark.parametrize(("others", "parts"), [([], ["0.25", ""]), (["dask"], ["0.25", "0.5"])])
def test_chain_across_workers_is_told_as_a_part_of_the_plain_chain_of_the_same_system(
    others: list[str], parts: list[str]
) -> None:
    cells = {
        ("chain", "weft"): Cell("weft", "chain", runs=[8_000.0]),
        ("chain-across", "weft"): Cell("weft", "chain-across", runs=[2_000.0]),
        ("chain-across", "dask"): Cell("dask", "chain-across", runs=[100.0]),
        **{("chain", name): Cell(name, "chain", runs=[200.0]) for name in others},
    }
    (text,) = TABLE.render(cells, None, is_quick=True)
    (line,) = [x for x in text.splitlines() if "of the plain chain" in x]
    assert [x.strip() for x in line.split("|")[-3:-1]] == parts


@pytest.mark.parametrize(
    ("per_s", "percent", "is_met", "is_told"),
    [(9_900.0, 0.8, True, False), (9_900.0, 1.2, False, False), (6_000.0, 0.8, None, True)],
)
def test_the_cost_of_viewers_is_judged_where_the_tasks_were_run(
    per_s: float, percent: float, is_met: bool | None, is_told: bool
) -> None:
    extra = {"tasks_per_s": [10_000.0, per_s, 10_000.0]}
    cell = Cell("weft", "viewers", runs=[percent, percent, 9.0], size=10_000, extra=extra)
    cells = {("viewers", "weft"): cell}
    (goal,) = [goal for goal in GOALS if goal.row == "viewers"]
    assert goal.is_met(cells) is is_met
    below = " ".join(TABLE.closing(cells, "One run", command.parse([])))
    assert ("6 000 tasks/s were run, not 10 000" in below) is is_told


def test_table_is_aligned_and_gives_each_reason_once() -> None:
    cells = {
        ("map", "weft"): Cell("weft", "map", runs=[104_321.0, 100_000.0, 110_000.0]),
        ("map", "dask"): Cell("dask", "map", note="it hung"),
        ("chain", "dask"): Cell("dask", "chain", note="it hung"),
    }
    (text,) = TABLE.render(cells, None, is_quick=True)
    assert text.splitlines() == [
        "| workload             |        weft |  dask |",
        "| :------------------- | ----------: | ----: |",
        "| map of 400, tasks/s  | 104 000 ±5% | - [1] |",
        "| chain of 50, tasks/s |             | - [1] |",
        "",
        "[1] it hung",
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (104_321, "104 000"),
        (999.4, "999"),
        (590.4, "590"),
        (0.23149, "0.231"),
        (1_234_567, "1 230 000"),
    ],
)
def test_figures_have_three_digits(value: float, text: str) -> None:
    assert show(value) == text


def test_help_names_every_system_and_workload(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        command.parse(["--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out.replace("-\n", "-").split()
    tables = [load(name) for name in TABLES]
    for name in {name for table in tables for name in (*table.systems, *table.groups)}:
        assert any(word.strip(".,") == name for word in text), name


def test_marked_processes_finds_only_its_own() -> None:
    assert supervise.marked_processes("no such mark") == []


def test_the_scheduler_at_scale_is_measured(capsys):
    scaling.joins(20, 3)
    scaling.tasks(1000, 2)
    assert "20 workers join beside 3 clients" in capsys.readouterr().out


@pytest.mark.slow
def test_the_cost_of_viewers_is_measured_for_the_scheduler_and_in_a_browser(capsys):
    viewers.cost(500, 2, 0.2, 1, rest_s=0.0)
    assert "2 viewers at 500 tasks/s" in capsys.readouterr().out
    viewers.frames(500, 0.2)
    assert "500 attempts on " in capsys.readouterr().out


@pytest.mark.slow
def test_the_benchmark_of_data_larger_than_memory_plays_a_case_with_real_workers(capsys):
    code = larger_than_memory.main(["--quick", "--only", "submit"])
    text = capsys.readouterr().out
    assert code == 0, text
    (row,) = [x for x in text.splitlines() if x.startswith("submit")]
    assert " right " in row


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_the_benchmark_of_one_host_finds_one_copy_of_a_result(capsys):
    given = ["--mb", "40", "--readers", "2", "--repeat", "1", "--no-dask", "--only", "result"]
    assert one_host.main(given) == 0
    (row,) = [x for x in capsys.readouterr().out.splitlines() if x.startswith("| result")]
    assert 0.9 < float(row.split("|")[3]) < 1.5


@pytest.mark.slow
def test_the_benchmark_of_full_memory_plays_a_case_with_real_workers(capsys):
    assert full_memory.main(["--only", "24 held"]) == 0
    (row,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| 24 ")]
    assert "| 24 finished | 0 | 50 | lives |" in row
