"""submitting.py: items and commands of `weft submit`, and how few jobs are at the cluster."""

from __future__ import annotations

import os
import re

import click
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import weft
from weft.deploy.cli import submitting
from weft.deploy.cli.submitting import Items, Jobs, array_of, command_of, items_of


def made(words, **options):
    return command_of(
        words, **{"has_items": True, "cwd": None, "scratch": False, "env": {}, **options}
    )


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("3", [3]),
        ("0-3", [0, 1, 2, 3]),
        ("0-9:4", [0, 4, 8]),
        ("1,5, 7-9", [1, 5, 7, 8, 9]),
    ],
)
def test_an_array_is_numbers_and_ranges(text, numbers):
    assert [number for part, _ in array_of(text) for number in part] == numbers


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "takes 1-10"),
        ("a", "takes 1-10"),
        ("-3", "takes 1-10"),
        ("1-5:0", "takes 1-10"),
        ("1..5", "takes 1-10"),
        ("5-1", "5-1 ends before it begins"),
        ("0-99999999", "at most 10000000 numbers"),
    ],
)
def test_an_array_that_is_none_is_an_error_with_an_example(text, error):
    with pytest.raises(click.UsageError, match=error):
        array_of(text)


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99), st.integers(1, 9)), min_size=1))
def test_any_array_has_the_numbers_of_its_parts(parts):
    text = ",".join(f"{first}-{first + n}:{step}" for first, n, step in parts)
    expected = [range(first, first + n + 1, step) for first, n, step in parts]
    assert [list(part) for part, _ in array_of(text)] == [list(part) for part in expected]


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("08-11", ["08", "09", "10", "11"]),
        ("0-10:5", ["0", "5", "10"]),
        ("1-003", ["001", "002", "003"]),
        ("07,7", ["07", "7"]),
    ],
)
def test_leading_zeros_of_an_array_are_kept(text, items):
    assert list(items_of(text, None).texts) == items


def test_items_are_numbers_or_lines_and_are_counted_where_that_is_known(tmp_path):
    (tmp_path / "lines").write_text("a b\n\nc")
    numbers, lines = items_of("8-10", None), items_of(None, str(tmp_path / "lines"))
    assert (list(numbers.texts), numbers.n) == (["8", "9", "10"], 3)
    assert (list(lines.texts), lines.n) == (["a b", "", "c"], 3)
    assert items_of(None, None) is None


@given(st.binary())
def test_a_file_and_a_pipe_have_the_same_lines(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("lines") / "file"
    path.write_bytes(content)
    lines = re.split("\r?\n", content.decode("utf-8", "surrogateescape"))
    lines = lines if lines[-1] else lines[:-1]
    reader, writer = os.pipe()
    os.write(writer, content)
    os.close(writer)
    coming = items_of(None, f"/dev/fd/{reader}")
    os.close(reader)
    file = items_of(None, str(path))
    assert list(file.texts) == lines
    assert list(coming.texts) == lines
    assert (file.n, coming.n) == (len(lines), None)


def test_items_of_two_options_or_of_no_file_are_errors(tmp_path):
    with pytest.raises(click.UsageError, match="give one of them"):
        items_of("1", "-")
    with pytest.raises(click.FileError) as caught:
        items_of(None, str(tmp_path / "nowhere"))
    assert "No such file" in caught.value.format_message()


@pytest.mark.parametrize(
    ("words", "run"),
    [
        (["echo", "a"], "echo a 7"),
        (["echo", "{}", "a"], "echo 7 a"),
        (["echo", "{0}{}"], "echo 77"),
        (["echo a; echo b"], "echo a; echo b 7"),
        (["echo {} | cat"], "echo 7 | cat"),
        (["date"], "date 7"),
        (["echo", "{{}}", "{a}", "{{a}}", "${b}"], "echo '{7}' '{a}' '{{a}}' '${b}'"),
        (["awk '{print}' {} ${x}"], "awk '{print}' 7 ${x}"),
        (["~/run"], "~/run 7"),
        (["(pwd)&&\necho"], "(pwd)&&\necho 7"),
        (["ls *.txt"], "ls *.txt 7"),
    ],
)
def test_the_item_has_a_place_in_the_command(words, run):
    command = made(words)
    assert command.filled("7").text == run


@given(st.text("{}a0$ '"))
@example("{}}}")
@example("{{{0}")
@example("{{a}")
def test_only_braces_around_nothing_or_zero_are_the_place_of_an_item(word):
    command = made(["echo", word])
    expected = re.sub(r"\{0?\}", "7", word)
    assert command.filled("7").words[1] == expected
    assert made(["echo", word], has_items=False).filled().words[1] == word


def test_the_item_has_a_place_in_the_folder_and_in_variables():
    command = made(["ls"], cwd="a/{}", env={"A": "{}", "B": "{b}"}).filled("7")
    assert command.cwd == f"{os.getcwd()}/a/7"
    assert command.env == {"A": "7", "B": "{b}"}


def test_a_command_runs_in_this_folder_unless_another_one_is_named():
    assert made(["ls"], has_items=False).cwd == os.getcwd()
    assert made(["ls"], cwd="/tmp").cwd == "/tmp"
    assert made(["ls"], cwd="a").cwd == os.path.join(os.getcwd(), "a")
    assert made(["ls"], scratch=True).cwd is None
    with pytest.raises(click.UsageError, match="give one of them"):
        made(["ls"], scratch=True, cwd="/tmp")
    with pytest.raises(click.UsageError, match="stands inside quotes"):
        made(['echo "{}"'])
    with pytest.raises(click.UsageError, match="the command is empty"):
        made([""], has_items=False)


@pytest.fixture
def client():
    with weft.Client(processes=False, n_workers=1, threads_per_worker=2) as client:
        yield client


def test_few_jobs_are_at_the_cluster_at_a_time(client, monkeypatch):
    monkeypatch.setattr(submitting, "WINDOW", 4)
    taken = []

    def numbers():
        for number in range(20):
            taken.append(number)
            yield str(number)

    jobs = Jobs(client, made(["echo"]), Items(numbers(), None), {"retries": 1, "timeout": None})
    printed = []
    for end in jobs.run():
        assert len(taken) - len(printed) <= 4
        printed.append(end.result.stdout)
    assert sorted(printed, key=int) == [f"{number}\n" for number in range(20)]
    assert (jobs.n_begun, jobs.n_ended, jobs.n_failed, jobs.n_left) == (20, 20, 0, 0)


def test_items_that_come_later_are_run_as_they_come(client):
    reader, writer = os.pipe()
    jobs = Jobs(client, made(["echo"]), items_of(None, f"/dev/fd/{reader}"), {})
    os.close(reader)
    os.write(writer, b"first\n")
    runs = jobs.run()
    assert next(runs).item == "first"
    os.write(writer, b"second\nthird")
    assert next(runs).item == "second"
    assert jobs.n is None
    os.close(writer)
    assert [end.item for end in runs] == ["third"]
    assert jobs.n == 3


def test_ends_are_in_the_order_of_the_items_if_that_is_asked_for(client, monkeypatch, tmp_path):
    monkeypatch.setattr(submitting, "WINDOW", 4)
    line = "test {} != 0 || while ! test -e 1; do sleep 0.01; done; touch {}"
    jobs = Jobs(
        client, made([line], cwd=str(tmp_path)), items_of("0-9", None), {}, keeps_order=True
    )
    ends = []
    for end in jobs.run():
        assert jobs.n_begun - len(ends) <= 4
        ends.append(end.item)
    assert ends == [str(i) for i in range(10)]


def test_jobs_that_are_cancelled_end_and_no_other_begins(client, monkeypatch):
    monkeypatch.setattr(submitting, "WINDOW", 3)
    jobs = Jobs(client, made(["sh", "-c", "test $0 = 0 || sleep 1000"]), items_of("0-50", None), {})
    for end in jobs.run():
        assert (end.item, end.code) == ("0", 0)
        jobs.cancel()
    assert (jobs.n_begun, jobs.n_ended) == (3, 1)


def test_the_end_of_a_job_says_why_it_has_failed(client):
    ends = {}
    for line in ("exit 5", "exit 127", "kill -9 $$", "exit 200"):
        (ends[line],) = Jobs(client, made([line], has_items=False), None, {}).run()
    assert {line: (end.code, end.error) for line, end in ends.items()} == {
        "exit 5": (5, "exit code 5"),
        "exit 127": (1, "exit code 127"),
        "kill -9 $$": (1, "it was ended by SIGKILL"),
        "exit 200": (1, "exit code 200"),
    }
    command = made(["echo 1; sleep 1000"], has_items=False, timeout=0.1)
    (late,) = Jobs(client, command, None, {}).run()
    assert (late.code, late.error) == (1, "it ran for longer than its timeout")
    assert late.to_plain()["stdout"] == "1\n"
    (late,) = Jobs(client, made(["sleep 1000"], has_items=False), None, {"timeout": 0.1}).run()
    assert (late.code, late.error[:13]) == (1, "TaskTimedOut:")


def test_no_items_are_no_jobs(client):
    jobs = Jobs(client, made(["echo"]), Items([], 0), {})
    assert list(jobs.run()) == []
    assert jobs.n_begun == 0
