"""`weft submit`, as a process: what it prints, its exit codes, and its end by Ctrl-C."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

from tests.deploy.daemons import daemon, environment, run, scheduler

pytestmark = pytest.mark.slow


def submit(tmp_path, *arguments):
    return run("submit", "--local", *arguments, folder=tmp_path)


def test_a_single_run_is_as_if_it_was_started_here(tmp_path):
    done = submit(tmp_path, "--", "pwd; echo no >&2; exit 3")
    assert (done.stdout, done.returncode) == (f"{tmp_path}\n", 3)
    assert done.stderr == "no\nweft submit: exit code 3\n"
    done = submit(tmp_path, "--env", "A=b", "--", "echo $A")
    assert (done.stdout, done.stderr, done.returncode) == ("b\n", "", 0)


def test_a_run_of_a_category_may_use_no_more_than_that(tmp_path):
    limits = "--category", "small", "--category-memory", "30MB"
    line = "head -c 400000000 /dev/zero | tail -n 1 | wc -c; sleep 3"  # workload
    done = submit(tmp_path, *limits, "--", line)
    assert "category 'small' may use 28.6 MiB (30000000 bytes), its max_memory=" in done.stderr
    assert done.returncode != 0
    done = submit(tmp_path, "--category-mode", "max", "--", "true")
    assert "need --category NAME" in done.stderr


def test_printed_bytes_pass_as_they_are_whatever_the_encoding_is(tmp_path):
    words = ["submit", "--local", "--", r"printf 'a\377\303\251'; printf '\376' >&2"]
    done = subprocess.run(
        [sys.executable, "-m", "weft", *words],
        check=False,
        capture_output=True,
        cwd=tmp_path,
        env=environment(tmp_path / "run", PYTHONIOENCODING="ascii"),
    )
    assert (done.stdout, done.stderr, done.returncode) == (b"a\xff\xc3\xa9", b"\xfe", 0)


def test_output_that_is_cut_is_said(tmp_path):
    done = submit(tmp_path, "--", "seq", "1", "200000")
    assert len(done.stdout) == 1 << 20
    assert done.stderr.startswith("weft submit: the run: it has printed more than is kept")


def test_how_much_is_kept_of_the_output_can_be_chosen_and_records_say_what_is_cut(tmp_path):
    record = json.loads(submit(tmp_path, "--json", "--max-output", "4", "--", "echo 12345").stdout)
    assert (record["stdout"], record["is_cut"]) == ("345\n", True)


def test_a_run_that_takes_too_long_shows_what_it_has_printed_so_far(tmp_path):
    done = submit(tmp_path, "--timeout", "0.5", "--", "echo so far; sleep 1000")
    assert (done.stdout, done.returncode) == ("so far\n", 1)
    assert done.stderr == "weft submit: it ran for longer than its timeout\n"


def test_lines_can_have_tags_and_the_order_of_the_items(tmp_path):
    line = r"printf 'x\ny'; test {} != 08 || sleep 0.2; echo {} >&2"  # workload
    done = submit(tmp_path, "--keep-order", "--tag", "--array", "08-10", "--", line)
    assert done.stdout == "".join(f"{i}\tx\n{i}\ty\n" for i in ("08", "09", "10"))
    assert done.stderr == "08\t08\n09\t09\n10\t10\n"


def test_a_relative_folder_is_of_the_machine_that_submits(tmp_path):
    done = submit(tmp_path, "--cwd", "b", "--", "pwd")
    assert f"FileNotFoundError: {tmp_path}/b, the cwd= of 'pwd', is no folder of" in done.stderr


def test_without_a_cluster_the_error_names_the_way_that_needs_none(tmp_path):
    done = run("submit", "--", "true", folder=tmp_path)
    assert done.returncode == 69
    assert "run it on this machine alone: weft submit --local" in done.stderr


def test_runs_for_items_print_whole_and_failures_are_counted(tmp_path):
    done = submit(tmp_path, "--array", "1-4", "--", "echo {}; echo {}; test {} != 3")
    lines = done.stdout.split()
    assert [*lines[::2]] == [*lines[1::2]]
    assert sorted(lines) == sorted("12341234")
    assert done.stderr == "weft submit: 3: exit code 1\nweft submit: 1 of 4 failed\n"
    assert done.returncode == 1


def test_records_are_for_programs(tmp_path):
    (tmp_path / "lines").write_text("a b\nc\n")
    done = submit(tmp_path, "--json", "--each-line", "lines", "--", "echo")
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert {record["item"]: record["stdout"] for record in records} == {"a b": "a b\n", "c": "c\n"}
    assert all(record["ok"] and record["wall_s"] > 0 for record in records)
    assert (done.stderr, done.returncode) == ("", 0)


def test_records_of_failures_have_the_same_names(tmp_path):
    done = submit(tmp_path, "--json", "--array", "0,9", "--", "echo {}; kill -{} $$")
    ends = {record["item"]: record for record in map(json.loads, done.stdout.splitlines())}
    assert list(ends["0"]) == list(ends["9"])
    assert (ends["0"]["returncode"], ends["0"]["signal"], ends["0"]["error"]) == (0, "", "")
    assert (ends["9"]["returncode"], ends["9"]["signal"]) == (-9, "SIGKILL")
    assert (ends["9"]["stdout"], ends["9"]["error"]) == ("9\n", "it was ended by SIGKILL")
    assert ends["9"]["wall_s"] > 0
    assert ends["9"]["worker"]
    assert (ends["9"]["is_cut"], done.returncode) == (False, 1)


def test_the_rest_is_cancelled_after_a_failure_if_that_is_asked_for(tmp_path):
    line = "test {} != 1 || exit 9; sleep 1000"
    done = submit(tmp_path, "--fail-fast", "--array", "1-50", "--", line)
    assert done.returncode == 1
    assert "weft submit: 1: exit code 9\n" in done.stderr
    assert done.stderr.endswith("weft submit: 1 of 1 failed\nweft submit: cancelled 49 of 50\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_cancels_what_has_not_ended_and_leaves_nothing(tmp_path, wait_until, number):
    words = ["submit", "--local", "--array", "1-50", "--", f"{tmp_path}/job", "{}"]
    (tmp_path / "tmp").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "weft", *words],
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=environment(tmp_path / "run", TMPDIR=str(tmp_path / "tmp")),
    )
    wait_until(lambda: (tmp_path / "begun").exists(), timeout_s=60)
    process.send_signal(number)
    _, printed = process.communicate(timeout=60)
    assert (printed, process.returncode) == ("weft submit: cancelled 50 of 50\n", 130)
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_scheduler_that_is_lost_is_one_error_and_says_how_many_runs_are_lost(
    tmp_path, wait_until
):
    options = ["--fail-fast", "--array", "1-50", "--resources", "GPU=1"]
    words = ["submit", *options, "--", f"{tmp_path}/job"]
    with (
        scheduler(folder=tmp_path) as running,
        daemon("worker", "--resources", "GPU=1", folder=tmp_path),
        daemon(*words, folder=tmp_path, WEFT_CLIENT_RECONNECT_TIMEOUT="0.1") as submitting,
    ):
        wait_until((tmp_path / "begun").exists, timeout_s=60)
        running.stop()
        assert submitting.process.wait(60) == 69
        assert submitting.err.startswith("weft submit: lost 50 of 50\nweft: ")
        assert submitting.err.count("\n") == 2


@pytest.fixture(autouse=True)
def job(tmp_path):
    script = tmp_path / "job"
    script.write_text(f"#!/bin/sh\ntouch {tmp_path}/begun\nsleep 1000\n")
    script.chmod(0o755)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--array", "1", "--each-line", "-", "--", "true"], "give one of them"),
        (["--array", "x", "--", "true"], "--array takes 1-10"),
        (["--scheduler", "tcp://127.0.0.1:1", "--", "true"], "leave scheduler and resources out"),
        (["--resources", "GPU=1", "--", "true"], "leave scheduler and resources out"),
        (["--resources", "GPU", "--", "true"], "'GPU' is not NAME=AMOUNT"),
        (["--max-output", "much", "--", "true"], "--max-output"),
        (["--env", "A", "--", "true"], "--env takes NAME=VALUE"),
        ([], "no command to run"),
    ],
)
def test_wrong_options_are_errors_before_anything_starts(tmp_path, arguments, text):
    done = submit(tmp_path, *arguments)
    assert done.returncode == 2
    assert text in done.stderr
