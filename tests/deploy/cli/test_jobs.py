"""`weft queue`, `wait`, `output`, `cancel` and `forget`, and jobs that `weft submit` detaches."""

from __future__ import annotations

import datetime as dt
import json
import re
import sys
from dataclasses import replace

import pytest

import weft
from tests.deploy.daemons import daemon, file_of, run, scheduler
from tests.leaks import wait_until
from weft.client.insight.jobs import Job
from weft.deploy.cli.jobs import counted, plain, table

SUBMITTED = dt.datetime(2030, 12, 24, 18, 0)
ENDED = Job(
    "abs-1", "abs", "done", "me", SUBMITTED, SUBMITTED + dt.timedelta(seconds=90), 2048, True
)
PENDING = Job("a-longer-key", "f", "pending", "someone", SUBMITTED, None, 0, False)
RECURRING = replace(PENDING, cron="@hourly", next_time=SUBMITTED + dt.timedelta(hours=1))


def test_a_table_has_a_line_for_each_job():
    assert table([ENDED, PENDING]).splitlines() == [
        "KEY           STATE    NAME  CLIENT   SUBMITTED            TOOK  SIZE",
        "abs-1         done     abs   me       2030-12-24 18:00:00  90 s  2 KiB",
        "a-longer-key  pending  f     someone  2030-12-24 18:00:00",
    ]


def test_recurring_jobs_have_a_column_of_their_next_time():
    assert table([ENDED, RECURRING, replace(RECURRING, next_time=None)]).splitlines() == [
        "KEY           STATE    NAME  CLIENT   SUBMITTED            TOOK  SIZE   NEXT",
        "abs-1         done     abs   me       2030-12-24 18:00:00  90 s  2 KiB",
        "a-longer-key  pending  f     someone  2030-12-24 18:00:00               "
        "2030-12-24 19:00:00  (@hourly)",
        "a-longer-key  pending  f     someone  2030-12-24 18:00:00               none",
    ]
    assert (plain(RECURRING)["cron"], plain(RECURRING)["next"]) == (
        "@hourly",
        "2030-12-24T19:00:00",
    )


def test_jobs_of_users_have_a_column_of_these():
    assert table([ENDED, replace(PENDING, user="ann")]).splitlines() == [
        "KEY           STATE    NAME  CLIENT   USER  SUBMITTED            TOOK  SIZE",
        "abs-1         done     abs   me             2030-12-24 18:00:00  90 s  2 KiB",
        "a-longer-key  pending  f     someone  ann   2030-12-24 18:00:00",
    ]
    assert [plain(job)["user"] for job in (ENDED, replace(PENDING, user="ann"))] == ["", "ann"]


def test_jobs_of_queues_have_a_column_of_these_and_say_which_are_paused():
    jobs = [ENDED, replace(PENDING, queue="q"), replace(PENDING, queue="nightly")]
    assert table(jobs, {"q": 1}).splitlines() == [
        "KEY           STATE    NAME  CLIENT   QUEUE       SUBMITTED            TOOK  SIZE",
        "abs-1         done     abs   me                   2030-12-24 18:00:00  90 s  2 KiB",
        "a-longer-key  pending  f     someone  q (paused)  2030-12-24 18:00:00",
        "a-longer-key  pending  f     someone  nightly     2030-12-24 18:00:00",
    ]
    assert plain(jobs[1])["queue"] == "q"


def test_numbers_of_jobs_have_a_line_for_each_name():
    assert counted({"abs": {"done": 2}, "train": {"pending": 10}}).splitlines() == [
        "NAME   PENDING  DONE  FAILED  CANCELLED  LOST",
        "abs    0        2     0       0          0",
        "train  10       0     0       0          0",
    ]


def test_a_record_has_times_that_programs_read():
    record = json.loads(json.dumps(plain(ENDED)))
    assert dt.datetime.fromisoformat(record["submitted"]) == SUBMITTED
    assert record["ended"] == "2030-12-24T18:01:30"
    assert plain(PENDING)["ended"] is None


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("jobs")
    with (
        scheduler(folder=folder) as started,
        daemon("worker", "--nworkers", "2", "--nthreads", "1", folder=folder) as workers,
    ):
        workers.wait_for("registered", 2)
        with weft.Client(connection_file=file_of(started)) as client:
            yield folder, client


@pytest.fixture
def command(folder):
    """Return `weft COMMAND ...` as (exit code, output, errors)."""

    def call(*words):
        done = run(*words, folder=folder[0])
        return done.returncode, done.stdout, done.stderr

    return call


@pytest.mark.slow
def test_pending_jobs_are_listed_as_waiting_or_running(command, folder, tmp_path):
    client = folder[1]
    gate = tmp_path / "gate"
    waits = f"until [ -e {gate} ]; do sleep 0.1; done"  # workload
    array = command("submit", "--detach", "--array", "1-1", "--", f": {{}}; {waits}")[1].strip()
    single = client.submit(weft.Command(waits), detached=True)
    late = client.submit(abs, -1, detached=True, start_after="1 h")
    client.wait_recorded()
    wait_until(lambda: sum(map(len, client.processing().values())) == 2, 60)
    for state, keys in {"running": [single.key, array], "waiting": [late.key]}.items():
        code, out, err = command("queue", "--state", state, "--json")
        assert code == 0, err
        records = [json.loads(line) for line in out.splitlines()]
        assert [(one["key"], one["state"]) for one in records] == [(key, state) for key in keys]
    late.cancel()
    gate.touch()
    assert single.result(60).stdout == ""
    wait_until(lambda: client.job(array).state == "done", 60)


def test_submit_without_a_command_shows_one(tmp_path):
    done = run("submit", folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no command to run; for example 'weft submit -- hostname'" in done.stderr


@pytest.mark.slow
def test_a_detached_command_is_waited_for_and_printed(command):
    code, out, _ = command("submit", "--detach", "--", "echo one; echo two >&2; exit 3")
    assert code == 0
    key = out.strip()
    code, out, err = command("wait", key)
    assert (code, out) == (1, "")
    assert "CommandFailed" in err
    assert command("output", key) == (3, "one\n", "two\n")


@pytest.mark.slow
def test_output_of_the_function_of_a_job_is_printed(command, folder):
    def say(fails):
        print("one")
        print("two", file=sys.stderr)
        return 1 // (not fails)

    keys = [folder[1].submit(say, n, detached=True, output="keep").key for n in (0, 1)]
    assert command("output", keys[0]) == (0, "one\n", "two\n")
    code, out, err = command("output", keys[1])
    assert (code, out, err[:4]) == (1, "one\n", "two\n")
    assert "ZeroDivisionError" in err


@pytest.mark.slow
def test_a_detached_command_waits_while_its_queue_is_paused(command):
    assert command("pause", "nightly", "weekly") == (0, "", "")
    _, key, _ = command("submit", "--detach", "--queue", "nightly", "--", "echo", "hi")
    assert command("queue", "--limit", "1")[2].endswith("it: weekly\n")
    code, out, _ = command("queue", "--state", "pending")
    assert (code, out.count("nightly (paused)")) == (0, 1)
    assert command("resume", "nightly", "weekly") == (0, "", "")
    assert command("output", key.strip()) == (0, "hi\n", "")


@pytest.mark.slow
def test_a_list_that_is_cut_says_of_how_many_jobs_it_is(command, folder):
    _, client = folder
    for future in [client.submit(abs, n, detached=True) for n in range(3)]:
        future.result(60)
    n = sum(sum(of_name.values()) for of_name in client.job_counts().values())
    code, out, err = command("queue", "--limit", "2")
    assert (code, out.count("\n")) == (0, 3)
    assert err == f"2 of {n} jobs; --limit N shows more\n"
    _, out, err = command("queue", "--limit", "2", "--name", "abs")
    assert (out.count("\n"), err) == (3, "the latest 2 jobs; --limit N shows more\n")
    assert command("queue", "--limit", str(n))[2] == ""
    _, out, err = command("queue", "--limit", "2", "--json")
    assert (out.count("\n"), err) == (2, "the latest 2 jobs; --limit N shows more\n")


@pytest.mark.slow
def test_an_array_is_one_job_with_rows(command, folder):
    _, client = folder
    words = ("submit", "--detach", "--json", "--array", "010-050:20,7", "--")
    _, out, _ = command(*words, "sh", "-c", "echo run {}; test {} != 030")
    key = json.loads(out)["key"]
    code, out, err = command("wait", key)
    assert (code, out) == (1, "")
    assert f"RowsFailed: 1 of 4 rows of array '{key}' have not succeeded: 030" in err
    assert client.job(key).rows == {
        "pending": 0, "done": 3, "failed": 1, "cancelled": 0, "lost": 0
    }  # fmt: skip
    assert "4 of 4 ended (1 failed)" in command("queue", "--limit", "5")[1]
    assert command("output", f"{key}/7")[:2] == (0, "run 7\n")
    assert command("output", f"{key}/030")[:2] == (1, "run 030\n")
    code, _, err = command("output", key)
    assert code == 1
    assert f"weft output {key}/NUMBER" in err
    assert command("output", f"{key}/30")[0] == 1
    assert command("retry", key)[:2] == (0, f"{key}\n")
    assert command("wait", key)[0] == 1
    assert command("forget", key) == (0, "", "")
    code, out, err = command("forget", key)
    assert (code, out) == (1, "")
    assert "weft queue lists those that it has" in err
    assert key not in command("queue")[1]
    assert command("output", f"{key}/7")[0] == 1


@pytest.mark.slow
def test_an_array_waits_for_a_job_and_its_rows_are_cancelled_and_run_again(command):
    first = command("submit", "--detach", "--start-after", "1h", "--", "true")[1].strip()
    words = ("submit", "--detach", "--after", f"cancelled:{first}", "--array", "1-3", "--")
    key = command(*words, "echo", "{}")[1].strip()
    assert command("cancel", f"{key}/2") == (0, "", "")
    assert command("output", f"{key}/2")[0] == 1
    assert command("cancel", first) == (0, "", "")
    assert command("output", f"{key}/3")[:2] == (0, "3\n")
    assert "not succeeded: 2" in command("wait", key)[2]
    assert command("retry", f"{key}/2")[0] == 0
    assert command("wait", key) == (0, "", "")
    assert command("output", f"{key}/2")[:2] == (0, "2\n")


@pytest.mark.slow
def test_an_array_that_is_cancelled_ends_its_rows(command):
    key = command("submit", "--detach", "--array", "1-100000", "--", "sleep", "1000")[1].strip()
    assert command("cancel", key) == (0, "", "")
    assert command("wait", key)[0] == 1
    assert command("wait", f"{key}/5")[0] == 1
    code, out, _ = command("queue", "--json", "--limit", "1")
    assert code == 0
    assert json.loads(out)["state"] == "cancelled"
    assert json.loads(out)["rows"]["pending"] == 100_000


@pytest.mark.slow
def test_the_queue_is_searched_and_counted(command, folder):
    _, client = folder
    client.gather(client.map(divmod, range(3), range(1, 4), detached=True))
    for words, n in [
        (("--match", "div.od"), 3),
        (("--match", "nothing like that"), 0),
        (("--name", "divmod", "--since", "1h"), 3),
        (("--name", "divmod", "--until", "1h"), 0),
        (("--name", "divmod", "--since", "2030-12-24 18:00"), 0),
    ]:
        assert len(command("queue", "--json", *words)[1].splitlines()) == n, words
    header, *lines = command("queue", "--summary")[1].splitlines()
    assert header.split() == ["NAME", "PENDING", "DONE", "FAILED", "CANCELLED", "LOST"]
    assert ["divmod", "0", "3", "0", "0", "0"] in [line.split() for line in lines]
    assert json.loads(command("queue", "--summary", "--json")[1])["divmod"] == {"done": 3}
    for words, text in [
        (("--match", "("), "--match (: "),
        (("--since", "soon"), "--since: 'soon' is not a time; give a point in time"),
        (("--summary", "--name", "x"), "leave the other options out"),
        (("--match", "x", "--name", "x"), "not both"),
    ]:
        code, _, err = command("queue", *words)
        assert code == 2
        assert text in err


@pytest.mark.slow
def test_the_journal_of_a_running_scheduler_is_copied(command, folder, tmp_path):
    _, client = folder
    client.submit(abs, -1, detached=True).result()
    [journal] = folder[0].rglob("journal.sqlite")
    copy = tmp_path / "copy.sqlite"
    code, out, _ = command("journal", "backup", str(journal.parent), str(copy))
    assert code == 0
    assert out.startswith(f"{copy}: ")
    for place in (copy, journal.parent):
        header, job, *_ = command("journal", "list", str(place))[1].splitlines()
        assert header.split()[:3] == ["KEY", "STATE", "NAME"]
        assert job.split()[2] == "abs"
    assert len(command("journal", "list", str(copy), "--limit", "1")[1].splitlines()) == 2
    assert "given back" in command("journal", "compact", str(journal))[1]
    code, _, err = command("journal", "restore", str(journal), str(copy))
    assert code != 0
    assert "stop it first" in err
    assert command("journal", "restore", str(tmp_path / "new"), str(copy))[0] == 0
    for words, text in [
        (("backup", str(journal)), "needs a COPY"),
        (("compact", str(journal), "x"), "takes no COPY"),
        (("list", str(tmp_path)), "there is no journal"),
        (("compact", str(tmp_path / "nothing")), "there is no journal"),
    ]:
        code, _, err = command("journal", *words)
        assert code == 2
        assert text in err


@pytest.mark.slow
def test_a_job_runs_after_another(command):
    first = command("submit", "--detach", "--start-after", "300ms", "--", "false")[1].strip()
    words = ("submit", "--detach", "--after", f"failed:{first}", "--", "echo cleaned")
    second = command(*words)[1].strip()
    assert command("output", second)[:2] == (0, "cleaned\n")
    # It has ended by now, so that is known at once.
    assert command("submit", "--after", f"ended:{first}", "--", "echo again")[1] == "again\n"
    code, _, err = command("submit", "--after", f"done:{first}", "--", "echo never")
    assert code == 1
    assert "that job has failed already" in err


@pytest.mark.slow
def test_jobs_that_have_failed_run_again(command, tmp_path):
    there = tmp_path / "there"
    lines = tmp_path / "lines"
    lines.write_text("x1\nx2\n")
    words = ("submit", "--detach", "--each-line", str(lines), "--", f"test -e {there} && echo {{}}")
    keys = command(*words)[1].split()
    assert command("wait", *keys)[0] == 1
    there.touch()
    assert command("retry", keys[0]) == (0, f"{keys[0]}\n", "")
    assert command("output", keys[0])[:2] == (0, "x1\n")
    code, _, err = command("retry", keys[0])
    assert code == 1
    assert "is done: forget it" in err
    assert command("retry", "--failed", "--match", keys[1]) == (0, f"{keys[1]}\n", "")
    assert command("wait", *keys) == (0, "", "")
    for words, text in [
        ((), "give KEYs, or --failed"),
        (("x", "--match", "x"), "goes with --failed"),
        (("--failed", "--match", "("), "--match (: "),
    ]:
        code, _, err = command("retry", *words)
        assert code == 2
        assert text in err
    assert command("retry", "--failed", "--match", "nothing") == (
        0,
        "",
        "weft retry: no such jobs\n",
    )


@pytest.mark.slow
def test_a_job_is_cancelled(command):
    key = command("submit", "--detach", "--start-after", "1h", "--", "true")[1].strip()
    assert key in command("queue", "--state", "pending")[1]
    code, _, err = command("wait", "--timeout", "100ms", key)
    assert (code, err) == (124, f"weft wait: {key} has not ended within 0.1 s; it goes on\n")
    assert "has not ended: cancel it first" in command("forget", key)[2]
    assert command("cancel", "--reason", "not needed", key)[0] == 0
    code, _, err = command("output", key)
    assert code == 1
    assert "not needed" in err


@pytest.mark.slow
def test_a_recurring_command_runs_until_it_is_cancelled(command, folder):
    _, client = folder
    words = (
        "--detach",
        "--cron",
        "* * * * * *",
        "--until",
        "2130-01-01",
        "--timezone",
        "Asia/Tokyo",
    )
    code, out, _ = command(
        "submit", *words, "--overlap", "skip", "--missed", "none", "--", "echo on"
    )
    assert code == 0
    key = out.strip()
    runs = {"name": re.compile(f"{re.escape(key)}@"), "state": "done"}
    wait_until(lambda: client.jobs(**runs), 60, "a run")
    _, out, _ = command("queue", "--match", f"{key}@", "--state", "done", "--json", "--limit", "1")
    assert command("output", json.loads(out)["key"])[:2] == (0, "on\n")
    _, out, _ = command("queue", "--recurring")
    header, line = out.splitlines()
    assert header.split()[-1] == "NEXT"
    assert line.startswith(f"{key}  pending")
    assert line.endswith("(* * * * * *)")
    code, _, err = command("output", key)
    assert code == 1
    assert f"is recurring, and its runs have printed; weft queue --match '{key}@'" in err
    assert command("cancel", "--reason", "not needed", key) == (0, "", "")
    assert command("queue", "--recurring") == (0, "", "no such jobs\n")
    assert json.loads(command("queue", "--match", f"{key}$", "--json")[1])["state"] == "cancelled"


@pytest.mark.slow
def test_results_of_other_jobs_are_printed(command, folder):
    _, client = folder
    assert command("output", client.submit(divmod, 7, 2, detached=True).key)[:2] == (0, "(3, 1)\n")


@pytest.mark.slow
@pytest.mark.parametrize("words", [("wait",), ("output",), ("cancel",)], ids=lambda words: words[0])
def test_an_unknown_job_is_one_line(command, words):
    code, _, err = command(*words, "nothing")
    assert code == 1
    assert "has no job 'nothing'; weft queue lists those that it has" in err
    assert len(err.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--after", "finished:x"), "--after takes STATE:KEY"),
        (("--detach", "--local"), "leave --local out"),
        (("--start-at", "tomorrow"), "not a time"),
        (("--detach", "--cron", "61 * * * *"), "--cron: '61 * * * *': bad minute; five fields"),
        (
            ("--detach", "--cron", "@daily", "--until", "2020-01-01"),
            "--until: '2020-01-01' is over",
        ),
        (("--detach", "--cron", "@daily", "--timezone", "Bonn"), "--timezone: no time zone 'Bonn'"),
        (("--detach", "--cron", "@daily", "--overlap", "wait"), "'wait' is not one of"),
        (("--cron", "@daily"), "--cron needs --detach"),
        (("--detach", "--missed", "all"), "--missed belongs to --cron"),
        (("--detach", "--cron", "@daily", "--ttl", "5s"), "other times out"),
        (("--detach", "--cron", "@daily", "--start-after", "0"), "other times out"),
        (("--detach", "--cron", "@daily", "--array", "1-3"), "leave --array"),
        (("--detach", "--array", "1-3,2"), "begins before the one before it ends"),
        (("--detach", "--ttl", "5s", "--array", "1-3"), "an array has a --deadline"),
    ],
)
def test_wrong_options_are_one_line(command, words, text):
    code, _, err = command("submit", *words, "--", "true")
    assert code in (1, 2)
    assert text in err
    assert "Traceback" not in err
