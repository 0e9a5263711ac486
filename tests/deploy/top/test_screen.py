"""The screen of `weft top` and the lines of `weft status`, drawn from plain data."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from tests.deploy.top.samples import snapshot
from weft.deploy.cli.status_text import describe_status, exit_code
from weft.deploy.overview.history import spark_text
from weft.deploy.overview.snapshot import Snapshot
from weft.deploy.overview.wording import memory_text, short_number, short_time
from weft.deploy.top.screen import draw
from weft.deploy.top.view import FAILURES, FUNCTIONS, HOSTS, View


def drawn(shown: Snapshot, view: View, width: int = 120, height: int = 24) -> str:
    out = io.StringIO()
    Console(file=out, width=width, height=height, color_system=None).print(
        draw(shown, view, width, height), end=""
    )
    return out.getvalue()


def test_the_screen_has_the_cluster_the_workers_and_the_keys():
    text = drawn(snapshot(), View())
    lines = text.splitlines()
    assert lines[0].startswith("weft  tcp://node1:8786  up 62 min, 1 client, scheduler 25% of")
    assert lines[1].startswith("workers 2 running, 1 leaving (enough work for 40 workers)")
    assert "4 GiB of 16 GiB, 3 GiB in results" in text
    assert "1 500 queued, 4 processing, 70 000 done (kept in memory), 2 failed" in text
    assert "100 tasks/s, 1 504 left for about 15 s" in text
    assert "[workers]  hosts  functions  failures   12 workers, sorted by name" in text
    (row,) = [line for line in lines if line.startswith("w-10 ")]
    assert {"idle", "0/2", "10", "━─────────", "10%", "host1"} <= set(row.split())
    assert lines[-1].startswith("tab table  s order")


def test_a_worker_that_leaves_shows_what_it_still_has():
    shown = snapshot(2)
    shown.workers["tcp://10.0.0.1:1"] |= {"is_leaving": True, "leaving": {"n_left": 12_345}}
    (row,) = [line for line in drawn(shown, View()).splitlines() if line.startswith("w-1 ")]
    assert "leaving, 12 345 to move" in row


@pytest.mark.parametrize("width", [20, 40, 60, 79, 80, 100, 200])
@pytest.mark.parametrize("height", [8, 12, 24])
@pytest.mark.parametrize("tab", ["workers", HOSTS, FUNCTIONS, FAILURES])
def test_no_line_is_wider_and_the_screen_no_higher_than_the_terminal(width, height, tab):
    lines = drawn(snapshot(40), View(tab=tab), width, height).split("\n")
    assert max(map(len, lines)) <= width
    assert len(lines) <= height + 1


def test_the_chosen_row_is_on_the_screen():
    view = View(selected="id39")
    text = drawn(snapshot(40), view, 120, 16)
    assert "w-39" in text
    assert "w-0 " not in text


def test_functions_have_rates_and_the_time_that_is_left():
    text = drawn(snapshot(), View(tab=FUNCTIONS))
    (row,) = [line for line in text.splitlines() if line.startswith("train")]
    assert row.split() == ["train", "200", "2", "1", "504", "4", "100", "15", "s", "750", "ms"]


def test_texts_of_users_are_not_read_as_markup_or_lines():
    text = drawn(snapshot(), View(tab=FAILURES), 160)
    assert "ValueError: oops [red]not markup[/red]" in text
    assert "more" not in text


def test_warnings_are_above_the_table_and_a_lost_scheduler_as_well():
    line = {"level": "error", "code": "no-workers", "text": "3 tasks wait: start 'weft worker'"}
    assert "error: 3 tasks wait: start 'weft worker'" in drawn(snapshot(health=[line]), View())
    shown = snapshot()
    shown.down = "no process listens there"
    text = drawn(shown, View())
    assert "down: no process listens there; trying again" in text
    assert "w-10" in text
    assert "waiting for the scheduler" in drawn(Snapshot(down="gone"), View())


def test_questions_and_what_is_typed_stand_in_the_last_line():
    view = View()
    view.press("/", snapshot())
    view.press("x", snapshot())
    assert drawn(snapshot(), view).splitlines()[-1].startswith("filter: x")
    view = View(selected="id3")
    view.press("r", snapshot())
    assert "retire w-3? It finishes what it runs, and leaves (y/n)" in drawn(snapshot(), view)


# --- weft status ----------------------------------------------------------------------------------


def test_the_status_is_a_page_of_plain_lines():
    text = describe_status(snapshot())
    lines = text.splitlines()
    assert lines[0] == (
        "scheduler at tcp://node1:8786, process 123 on node1, weft 0.1.0, Python 3.11.7, up 62 min"
    )
    assert lines[1] == "  ok         no problem is known"
    assert "  progress     100 tasks/s, 1 504 left for about 15 s" in lines
    assert "  since start  70 100 completed, 2 failed, 5 retried, 1 workers lost" in lines
    assert "  scheduler    25% of a core, up to 3 ms late" in lines
    assert "train          200       2       1 504        4     750 ms" in lines
    assert "load 69 900 0 0 0 1 ms" in [" ".join(line.split()) for line in lines]
    assert (
        lines[-1] == "       12 s ago  train-0a1b on w-10: ValueError: oops [red]not markup[/red]"
    )


def test_functions_that_the_status_leaves_out_are_counted():
    function = snapshot().overview["functions"][1]
    many = [{**function, "name": f"f{i}"} for i in range(13)]
    lines = describe_status(snapshot(functions=many)).splitlines()
    assert "and 3 more functions; 'weft top' has all of them" in lines
    assert any(line.startswith("f9 ") for line in lines)
    assert not any(line.startswith("f10 ") for line in lines)


def test_a_rate_is_not_shown_before_it_is_known():
    shown = Snapshot(address="tcp://node1:8786")
    first = snapshot().overview
    shown.take(first, 1.0)
    assert "rate    not known yet" in drawn(shown, View())
    assert "tasks/s" not in describe_status(shown)
    shown.take(first, 2.0)
    assert "rate    no task finishes now" in drawn(shown, View())
    assert "tasks/s" not in describe_status(shown)


@pytest.mark.parametrize(
    ("levels", "expected"), [(["ok"], 0), (["warning"], 1), (["warning", "error"], 1)]
)
def test_the_exit_code_is_that_of_the_worst_line(levels, expected):
    health = [{"level": level, "code": "c", "text": "t"} for level in levels]
    assert exit_code(snapshot(health=health)) == expected


def test_a_cluster_that_cannot_be_reached_is_down():
    down = Snapshot(address="tcp://a:1", down="no process listens there")
    assert exit_code(down) == 69
    assert describe_status(down) == (
        "down: the scheduler at tcp://a:1 cannot be reached: no process listens there"
    )
    assert exit_code(Snapshot()) == 69
    assert (
        describe_status(Snapshot(down="no scheduler was found")) == "down: no scheduler was found"
    )


def test_the_share_of_a_core_begins_anew_with_another_scheduler():
    shown = snapshot()
    assert shown.cpu_share == 0.25
    again = {**shown.overview, "epoch": 8, "cpu_s": 0.1}
    shown.take(again, 12.0)
    assert shown.cpu_share == 0.25
    shown.take({**again, "cpu_s": 0.6}, 13.0)
    assert shown.cpu_share == 0.5


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (None, "?"),
        (0, "0 s"),
        (0.0421, "42 ms"),
        (3.14159, "3.1 s"),
        (59.9, "60 s"),
        (61, "61 s"),
        (3600, "60 min"),
        (90_000, "25 h"),
    ],
)
def test_times_are_short(seconds, expected):
    assert short_time(seconds) == expected


@pytest.mark.parametrize(
    ("n", "expected"),
    [(0, "0"), (0.25, "0.2"), (7, "7"), (1234, "1 234"), (1.5e6, "1.5 M"), (2.5e9, "2.5 G")],
)
def test_numbers_are_short(n, expected):
    assert short_number(n) == expected


def test_memory_has_its_limit_if_there_is_one():
    assert memory_text(0, 0) == "0 B"
    assert memory_text(2 << 30, 4 << 30) == "2 GiB of 4 GiB"


def test_hosts_have_the_sums_over_their_workers():
    text = drawn(snapshot(12), View(tab=HOSTS))
    rows = [line.split() for line in text.splitlines() if line.startswith("host")]
    assert rows[0][:3] == ["host", "workers", "tasks"]
    n_workers = {row[0]: int(row[1]) for row in rows[1:]}
    assert sum(n_workers.values()) == 12
    assert len(n_workers) > 1


def test_the_last_minutes_are_small_lines_above_the_table():
    shown = snapshot()
    columns = {
        "at_ms": [0, 5000, 10_000, 15_000],
        "completed": [0, 0, 100, 150],
        "cpu_us": [0, 0, 30_000_000, 30_000_000],
        "managed": [0, 0, 0, 8 << 30],
        "unmanaged": [0, 0, 0, 8 << 30],
    }
    shown.history.take({"columns": columns, "cursor": "7.4", "is_new": True, "to_unix_s": 0.0})
    (line,) = [line for line in drawn(shown, View(), 72).splitlines() if "tasks/s  " in line]
    assert line.split() == ["50", "s", "tasks/s", "▁█▅", "cpu", "▁█▁", "memory", "▁▁▁█"]
    assert not [line for line in drawn(shown, View(), 60).splitlines() if "▁" in line]


def test_a_small_line_is_flat_where_nothing_happens_and_blank_where_nothing_is_known():
    assert spark_text([0.0, 0.0], 4) == "  ▁▁"
    assert spark_text([1.0, 2.0, 4.0, 8.0], 3) == "▃▅█"
    assert spark_text([4.0], 1, 8.0) == "▅"
    assert spark_text([1.0], 0) == ""
