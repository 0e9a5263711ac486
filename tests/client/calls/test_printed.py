"""`output=` of calls: what they print is kept, or goes to files."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading

import pytest

import weft
from weft.protocol.values.printed import MAX_KEPT


@pytest.fixture(params=[True, False], ids=["processes", "threads"])
def client(request):
    with weft.Client(processes=request.param, n_workers=1, threads_per_worker=2) as client:
        yield client


def say(text, fails=False):
    print(text)
    print(f"no {text}", file=sys.stderr)
    if fails:
        raise ValueError(text)
    return text


def test_output_of_a_call_is_kept(client):
    future = client.submit(say, "spam", output="keep")
    assert future.output() == weft.CallOutput("spam\n", "no spam\n")
    assert future.result() == "spam"
    assert future.key.startswith("say-")
    outputs = [one.output().stdout for one in client.map(say, ["a", "b", "c"], output="keep")]
    assert outputs == ["a\n", "b\n", "c\n"]


def test_a_failed_call_shows_the_last_that_it_has_printed(client):
    future = client.submit(say, "spam", fails=True, output="keep")
    error = future.exception()
    note = "\n".join(error.__notes__)
    assert "stdout: spam\n" in note
    assert "stderr: no spam" in note
    assert future.output().stderr == "no spam\n"


def test_threads_of_one_worker_keep_their_own_lines(client):
    def talk(text):
        # Each gets the other one's turn between its lines.
        gang = weft.get_gang()
        turns = weft.Queue(f"turns of {gang.rank}"), weft.Queue(f"turns of {1 - gang.rank}")
        for i in range(3):
            print(text, gang.rank, i)
            turns[1].put(i)
            turns[0].get(timeout=60)

    futures = client.submit_gang(talk, 2, "line", output="keep")
    for rank, future in enumerate(futures):
        assert future.output().stdout == "".join(f"line {rank} {i}\n" for i in range(3))


def test_the_last_64_kib_of_each_stream_are_kept(client):
    future = client.submit(lambda: print("ä" * MAX_KEPT, "the end"), output="keep")
    kept = future.output()
    assert kept.is_cut
    assert kept.stdout.endswith("ä the end\n")
    assert MAX_KEPT - 2 < len(kept.stdout.encode()) <= MAX_KEPT
    assert kept.stderr == ""


def test_coroutines_and_threads_with_the_context_of_a_call_print_for_it(client):
    async def talk():
        print("one")
        await asyncio.gather(asyncio.to_thread(print, "two"))
        thread = threading.Thread(target=contextvars.copy_context().run, args=(print, "three"))
        thread.start()
        thread.join()
        return 4

    future = client.submit(talk, output="keep")
    assert future.output().stdout == "one\ntwo\nthree\n"
    assert future.result() == 4


def test_output_goes_to_files(client, tmp_path):
    path, errors = tmp_path / "run.log", tmp_path / "run.err"
    for text in ("spam", "eggs"):
        client.submit(say, text, output=weft.OutputFile(path)).result()
    assert path.read_text() == "eggs\nno eggs\n"
    place = weft.OutputFile(path, stderr=errors, append=True)
    assert client.submit(say, "ham", output=place).result() == "ham"
    assert (path.read_text(), errors.read_text()) == ("eggs\nno eggs\nham\n", "no ham\n")


def test_each_attempt_begins_a_file_anew_unless_it_appends(client, tmp_path):
    def fail_once():
        print("begun")
        if not (tmp_path / "failed").exists():
            (tmp_path / "failed").touch()
            raise ValueError

    for append, text in ((False, "begun\n"), (True, "begun\nbegun\n")):
        path = tmp_path / f"{append}.log"
        place = weft.OutputFile(path, append=append)
        client.submit(fail_once, retries=1, pure=False, output=place).result()
        assert path.read_text() == text
        (tmp_path / "failed").unlink()


def test_the_output_of_a_command_is_given_by_the_same_method(client):
    command = weft.Command("echo {0}; echo no >&2; exit {1}")
    for output in ({}, {"output": "keep"}):
        assert client.submit(command, "x", 0, **output).output() == weft.CallOutput("x\n", "no\n")
        assert client.submit(command, "y", 3, **output).output() == weft.CallOutput("y\n", "no\n")


def test_nothing_is_kept_without_the_option(client):
    with pytest.raises(KeyError, match="nothing is kept"):
        client.submit(say, "spam").output()
    with pytest.raises(KeyError, match="nothing is kept"):
        client.submit(say, "spam", fails=True).output()


def test_an_option_that_is_no_place_is_refused(client):
    with pytest.raises(TypeError, match=r'output= is "keep" or a weft\.OutputFile'):
        client.submit(say, "spam", output="nowhere")
    with pytest.raises(TypeError, match="path of OutputFile"):
        weft.OutputFile(None)
    with pytest.raises(TypeError, match="output= cannot be given for an actor"):
        client.submit(list, actor=True, output="keep")


def test_a_function_that_takes_the_keyword_is_given_it(client):
    assert client.submit(lambda output: output, output="x").result() == "x"


def test_the_streams_are_as_before_when_no_call_prints(client):
    before = client.submit(lambda: type(sys.stdout).__name__, pure=False).result()
    client.submit(say, "spam", output="keep").result()
    assert client.submit(lambda: type(sys.stdout).__name__, pure=False).result() == before


def test_a_file_has_what_a_call_has_printed_that_took_too_long(client, tmp_path):
    def wait():
        print("begun")
        weft.Event("never set").wait()

    place = weft.OutputFile(tmp_path / "log")
    future = client.submit(wait, timeout=0.2, output=place)
    assert isinstance(future.exception(), weft.TaskTimedOut)
    assert (tmp_path / "log").read_text() in ("begun\n", "")  # it may not have begun to print


def test_an_asynchronous_client_awaits_output():
    async def main():
        async with weft.Client(processes=False, n_workers=1, asynchronous=True) as client:
            return await client.submit(say, "spam", output="keep").output()

    assert asyncio.run(main()).stdout == "spam\n"
