"""`weft compare`: two performance reports, function by function."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.client.display.test_report import worker
from tests.client.display.test_timeline import timing
from weft.client.display.report import ReportContent, report_page
from weft.deploy.cli.command import weft as command


def write(path, timings):
    shown = ReportContent(timings, 0.0, 10.0, "today", workers={"tcp://w-0": worker(nthreads=2)})
    path.write_text(report_page(shown), encoding="utf-8")
    return str(path)


@pytest.fixture
def reports(tmp_path):
    one = [timing(0, 4, "</script>"), timing(4, 5, "g"), timing(5, 6, "old", is_failed=True)]
    other = [timing(0, 1, "</script>"), timing(1, 3, "</script>"), timing(4, 5, "g")]
    return write(tmp_path / "a.html", one), write(tmp_path / "b.html", other)


def compare(*arguments):
    return CliRunner().invoke(command, ["compare", *arguments], catch_exceptions=True)


def test_functions_are_compared_those_that_differ_most_first(reports):
    done = compare(*reports)
    assert done.exit_code == 0
    lines = [" ".join(line.split()) for line in done.output.splitlines()]
    assert lines == [
        "A today: 10 s on 2 threads",
        "B today: 10 s on 2 threads",
        "",
        "function tasks raised mean median computed",
        "</script> 1 → 2 x2 4 s → 1.5 s x0.375 4 s → 1.5 s x0.375 4 s → 3 s x0.75",
        "old 1 → 0 1 → 0 1 s → 0 s 1 s → 0 s 1 s → 0 s",
        "g 1 1 s 1 s 1 s",
    ]


def test_the_figures_are_printed_for_programs(reports):
    found = json.loads(compare(*reports, "--json").output)
    assert found["a"]["n_threads"] == 2
    assert found["functions"]["</script>"]["ratio"]["median_s"] == 0.375
    assert found["functions"]["old"]["ratio"]["n_failed"] == 0
    assert found["functions"]["g"]["ratio"]["n_failed"] is None


@pytest.mark.parametrize("content", [b"\xff\x00", b"<html></html>"])
def test_a_file_that_is_no_report_is_an_error_that_names_it(reports, tmp_path, content):
    file = tmp_path / "other.html"
    file.write_bytes(content)
    done = compare(reports[0], str(file))
    assert f"{file} is no report with figures" in str(done.exception)


def test_a_report_of_a_later_version_is_refused(reports, tmp_path):
    file = tmp_path / "later.html"
    page = Path(reports[0]).read_text(encoding="utf-8")
    file.write_text(page.replace('{"format":1', '{"format":2'), encoding="utf-8")
    assert "of a later version of weft" in str(compare(reports[0], str(file)).exception)


def test_reports_of_nothing_are_compared(tmp_path):
    empty = write(tmp_path / "empty.html", [])
    assert "no task ended in either" in compare(empty, empty).output


def test_a_file_that_is_not_there_is_an_error_that_says_so(reports):
    assert "none.html cannot be read: No such file" in str(
        compare(reports[0], "none.html").exception
    )
