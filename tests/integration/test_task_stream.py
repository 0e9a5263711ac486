"""The task stream, reports and spans, on clusters in this process."""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
import threading
import time

import pytest

import weft
from tests.leaks import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]


@pytest.fixture(scope="module")
def cluster():
    with weft.LocalCluster(n_workers=2, threads_per_worker=2, processes=False) as cluster:
        yield cluster


def inc(x):
    return x + 1


def fail(x):
    raise ValueError(x)


def test_all_attempts_within_the_block_are_listed_once(client):
    client.gather(client.map(inc, range(50)))
    with weft.get_task_stream(client) as stream:
        futures = client.map(inc, range(100, 400))
        client.gather(futures)
        failed = client.submit(fail, 7, retries=1)
        assert failed.exception() is not None
    by_key = {}
    for record in stream.data:
        by_key.setdefault(record["key"], []).append(record)
    assert {*by_key} == {future.key for future in futures} | {failed.key}
    assert all(len(records) == 1 for key, records in by_key.items() if key != failed.key)
    first, second = by_key[failed.key]
    assert first["attempt"] < second["attempt"]
    assert (first["status"], first["type"], first["function"]) == ("error", "ValueError", "fail")
    (record,) = by_key[futures[0].key]
    assert (record["status"], record["type"], record["function"]) == ("OK", "int", "inc")
    assert record["worker"] in client.nthreads()
    assert record["nbytes"] > 0
    (compute,) = record["startstops"]
    assert compute["action"] == "compute"
    assert compute["start"] <= compute["stop"]
    assert stream.n_missed == 0
    assert stream.is_complete


def test_attempts_of_one_thread_do_not_overlap(client):
    with weft.get_task_stream(client) as stream:
        client.gather(client.map(inc, range(1000, 3000)))
    lanes = {}
    for record in stream.data:
        (compute,) = record["startstops"]
        lanes.setdefault((record["worker"], record["thread"]), []).append(compute)
    assert len(stream.data) == 2000
    for computes in lanes.values():
        computes.sort(key=lambda one: one["start"])
        for one, following in itertools.pairwise(computes):
            # A report that is faster than those before it places the worker's clock anew.
            assert following["start"] >= one["stop"] - 0.05


release = threading.Event()


def hold():
    assert release.wait(60)


def outer():
    return weft.get_client().submit(hold, pure=False).result()


def test_a_task_that_waits_has_its_waiting_time_between_start_and_stop(client):
    release.clear()
    with weft.get_task_stream(client) as stream:
        future = client.submit(outer, pure=False)
        assert not future.done()
        client.submit(inc, -77).result()
        release.set()
        future.result()
    (record,) = [one for one in stream.data if one["function"] == "outer"]
    (compute,) = [one for one in record["startstops"] if one["action"] == "compute"]
    assert 0 < record["waited"] <= compute["stop"] - compute["start"]


def test_the_method_returns_what_ended_since_its_first_call(client):
    client.get_task_stream()
    futures = client.map(inc, range(5000, 5010))
    client.gather(futures)
    found = client.get_task_stream()
    keys = [record["key"] for record in found]
    assert {future.key for future in futures} <= {*keys}
    stops = [record["startstops"][-1]["stop"] for record in found]
    assert stops == sorted(stops)
    assert client.get_task_stream(count=3) == client.get_task_stream()[-3:]
    assert client.get_task_stream(count=0) == []
    assert client.get_task_stream(start=time.time() + 60) == []
    assert client.get_task_stream(stop="1 h") == []
    assert len(client.get_task_stream(start="1 h")) >= 10


def test_times_are_by_the_scheduler_s_clock_also_where_the_program_s_differs(client, monkeypatch):
    client.get_task_stream()
    client.gather(client.map(inc, range(5100, 5110)))
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 7200)
    assert len(client.get_task_stream(start="1 h")) >= 10
    with weft.get_task_stream(client, plot=True) as stream:
        client.gather(client.map(inc, range(5110, 5120)))
    assert len(stream.data) == 10
    assert stream._begin <= stream.data[0]["startstops"][-1]["stop"]
    assert stream.data[-1]["startstops"][-1]["stop"] <= stream._end


def test_wrong_arguments_are_refused(client, tmp_path):
    for wrong in (-1, 1.5, True, "3"):
        with pytest.raises(ValueError, match="count= is a whole number"):
            client.get_task_stream(count=wrong)
    with pytest.raises(ValueError, match="plot= is False, True or"):
        client.get_task_stream(plot="yes")
    with pytest.raises(ValueError, match="plot= is False, True or"):
        weft.get_task_stream(client, plot=1.5)
    with pytest.raises(weft.InvalidDuration):
        client.get_task_stream(start="soon")
    with pytest.raises(TypeError, match="of a blocking client needs `with`"):
        asyncio.run(enter(weft.get_task_stream(client)))
    stream = weft.get_task_stream(client)
    with stream:
        pass
    with pytest.raises(RuntimeError, match="was entered before"), stream:
        pass
    with pytest.raises(FileNotFoundError, match=r"'.*nowhere', does not exist"):
        weft.performance_report(tmp_path / "nowhere" / "x.html", client=client).__enter__()
    with pytest.raises(IsADirectoryError, match="is a folder"):
        weft.performance_report(tmp_path, client=client).__enter__()
    with pytest.raises(TypeError, match=r"client= is a weft.Client, not int"):
        weft.get_task_stream(client=3).__enter__()
    with pytest.raises(weft.NotSupported, match="leave it out, the file has everything"):
        weft.performance_report(mode="cdn")
    with pytest.raises(ValueError, match="stacklevel= is a whole number"):
        weft.performance_report(stacklevel=0)


async def enter(context):
    async with context:
        pass


def strange(n_chars):
    return type("x" * n_chars, (), {})()


def fail_strangely(n_chars):
    raise type("x" * n_chars, (ValueError,), {})


def test_names_of_types_are_cut(client):
    with weft.get_task_stream(client) as stream:
        value = client.submit(strange, 70_000)
        weft.wait([value, client.submit(fail_strangely, 70_000)])
    types = {record["function"]: record["type"] for record in stream.data}
    assert types["strange"] == "x" * 100
    assert len(types["fail_strangely"]) == 100


def test_the_picture_is_returned_and_saved(client, tmp_path):
    file = tmp_path / "stream.html"
    with weft.get_task_stream(client, plot="save", filename=file) as stream:
        client.gather(client.map(inc, range(6000, 6020)))
    assert "stream-data" in file.read_text(encoding="utf-8")
    assert "iframe" in stream.figure._repr_html_()
    assert repr(stream.figure) == "<TaskStreamPicture of 20 attempts>"
    records, figure = client.get_task_stream(plot=True)
    assert len(records) >= 20
    assert "stream-data" in figure.page()


def test_tasks_carry_the_tags_of_the_spans_in_which_they_were_submitted(client):
    with weft.get_task_stream(client) as stream, weft.span("nightly") as outer_tags:
        client.submit(inc, 7000).result()
        with weft.span("load", "part 1") as tags:
            futures = client.map(inc, range(7001, 7004))
            client.gather(futures)
    client.submit(inc, 7005).result()
    assert (outer_tags, tags) == (("nightly",), ("nightly", "load", "part 1"))
    spans = {record["key"]: record["span"] for record in stream.data}
    assert {spans[future.key] for future in futures} == {tags}
    assert sorted(spans.values()).count(("nightly",)) == 1


def tagged():
    client = weft.get_client()
    with weft.span("inner"):
        one = client.submit(inc, 8000, pure=False)
    two = client.submit(inc, 8001, pure=False)
    client.gather([one, two])


def broken(_x):
    raise ValueError("no such thing")


def test_attempts_records_and_errors_show_the_options_that_say_what_a_task_is_for(client):
    with weft.get_task_stream(client) as stream, weft.span("nightly"):
        failed = client.submit(broken, 1)
        behind = client.submit(abs, failed)
        plain = client.submit(abs, -1, pure=False)
        weft.wait([behind, plain])
    assert all(record["span"] == ("nightly",) for record in stream.data)
    (attempt,) = failed.attempts()
    assert attempt == (attempt.worker, "raised ValueError: no such thing")
    assert [*attempt.options.items()] == [("span", ["nightly"])]
    for future in (failed, behind):
        notes = future.exception().__notes__
        assert f"weft: task {future.key} was submitted with span ['nightly']" in notes
    untagged = client.submit(broken, 2)
    assert not any("submitted with" in note for note in untagged.exception().__notes__)
    assert not untagged.attempts()[0].options


def with_meta(meta=None):
    return meta


def test_attempts_records_and_errors_show_what_a_user_says_of_a_task(client):
    meta = {"run": 7, "of": ["a", None, 1.5, True]}
    with weft.get_task_stream(client) as stream:
        failed = client.submit(broken, 3, meta=meta)
        mapped = client.map(inc, [8101, 8102], meta="both")
        weft.wait([failed, *mapped])
    shown = {record["key"]: record.get("meta") for record in stream.data}
    assert shown == {failed.key: meta, mapped[0].key: "both", mapped[1].key: "both"}
    assert failed.attempts()[0].options == {"meta": meta}
    note = f"weft: task {failed.key} was submitted with meta {meta!r}"
    assert note in failed.exception().__notes__
    with client.get_executor(meta="of an executor", pure=False) as executor:
        assert executor.submit(inc, 1).result(20) == 2
    assert client.submit(with_meta, meta=5).result(20) == 5


def spans_of_tagged(client):
    with weft.get_task_stream(client) as stream, weft.span("outer"):
        client.submit(tagged, pure=False).result()
    return sorted(record["span"] for record in stream.data)


def test_tasks_of_tasks_have_the_tags_of_both():
    with weft.Client(n_workers=1, set_as_default=False) as client:
        assert spans_of_tagged(client) == [("outer",), ("outer",), ("outer", "inner")]


def test_tasks_of_the_program_s_own_process_submit_by_its_client_without_their_tags(client):
    assert spans_of_tagged(client) == [(), ("inner",), ("outer",)]


def test_a_span_belongs_to_its_asynchronous_task_and_ends_with_its_block():
    async def one(client, name):
        with weft.span(name):
            entered[name].set()
            await asyncio.gather(*(one.wait() for one in entered.values()))
            return await client.submit(inc, name_number[name])

    name_number = {"a": 9000, "b": 9001}
    entered = {name: asyncio.Event() for name in name_number}

    async def main():
        async with weft.Client(asynchronous=True, processes=False, n_workers=1) as client:
            async with weft.get_task_stream() as stream:
                await asyncio.gather(*(one(client, name) for name in name_number))
                await client.submit(inc, 9002)
            return sorted(record["span"] for record in stream.data)

    assert asyncio.run(main()) == [(), ("a",), ("b",)]


def test_wrong_tags_are_refused():
    for wrong, error in [((), TypeError), ((1,), TypeError), (("",), ValueError)]:
        with pytest.raises(error), weft.span(*wrong):
            pass
    with pytest.raises(ValueError, match="1 to 100 characters"), weft.span("x" * 101):
        pass
    eight, nine = weft.span(*"abcdefgh"), weft.span(*"abcdefghi")
    with pytest.raises(ValueError, match="at most 16 tags"), eight, nine:
        pass


def test_a_report_has_what_ran(client, tmp_path):
    file = tmp_path / "report.html"
    with weft.performance_report(file, client=client):
        with weft.span("step"):
            client.gather(client.map(inc, range(10_000, 10_100)))
        client.submit(fail, 8).exception()
    page = file.read_text(encoding="utf-8")
    assert not list(tmp_path.glob("*.part"))
    assert "://" not in re.sub(r"\s(xmlns|href)=\S+", "", page)
    for text in ("inc", "fail", "ValueError", "step", "101", "4 threads", "cloudpickle"):
        assert text in page, text
    assert "with weft.performance_report(file, client=client):" in page
    assert "client.submit(fail, 8).exception()" in page
    assert "page = file.read_text" not in page


def test_a_report_is_written_if_the_block_raises_and_if_nothing_ran(client, tmp_path):
    file = tmp_path / "report.html"
    with pytest.raises(KeyError), weft.performance_report(file, client=client):
        raise KeyError
    assert "No task ended in this time" in file.read_text(encoding="utf-8")


def test_a_report_is_written_where_fsspec_can_write(client):
    fsspec = pytest.importorskip("fsspec", reason="pip install fsspec")
    with weft.performance_report("memory://reports/one.html", client=client):
        client.submit(inc, 11_000).result()
    with fsspec.open("memory://reports/one.html", "r") as found:
        assert "inc" in found.read()


def test_a_report_is_written_when_the_cluster_has_ended_meanwhile(tmp_path, caplog):
    file = tmp_path / "report.html"
    client = weft.Client(n_workers=1, processes=False, set_as_default=False)
    report = weft.performance_report(file, client=client)
    with caplog.at_level(logging.WARNING, "weft.client"), report:
        client.submit(inc, 12_000).result()
        client.close()
    assert "The end is missing" in file.read_text(encoding="utf-8")
    assert "the end of the task stream is missing" in caplog.text


async def test_a_report_of_an_asynchronous_client(tmp_path):
    file = tmp_path / "report.html"
    async with weft.Client(asynchronous=True, processes=False, n_workers=1) as client:
        async with weft.performance_report(file):
            await client.submit(inc, 13_000)
        report = weft.performance_report(file)
        with pytest.raises(TypeError, match="of an asynchronous client needs `async with`"), report:
            pass
        records = await client.get_task_stream()
        assert len(records) == 1
    page = file.read_text(encoding="utf-8")
    assert "inc" in page
    assert "async with weft.performance_report(file):" in page


def test_a_report_is_written_to_where_it_was_begun(client, tmp_path, monkeypatch):
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    with weft.performance_report(client=client), weft.get_task_stream(plot="save"):
        monkeypatch.chdir(tmp_path / "other")
    assert {path.name for path in tmp_path.iterdir()} == {
        "other",
        "task-stream.html",
        "weft-report.html",
    }


def test_a_report_of_a_program_without_a_text_has_no_code(client, tmp_path):
    file = tmp_path / "report.html"
    program = "with weft.performance_report(file, client=client): pass"
    exec(program, {"weft": weft, "file": file, "client": client})
    with weft.performance_report(tmp_path / "deep.html", stacklevel=1000, client=client):
        pass
    for path in (file, tmp_path / "deep.html"):
        assert ">Code<" not in path.read_text(encoding="utf-8")


async def test_a_stream_of_a_cluster_that_has_ended_is_not_complete(caplog):
    client = await weft.Client(asynchronous=True, processes=False, n_workers=1)
    with caplog.at_level(logging.WARNING, "weft.client"):
        async with weft.get_task_stream(client) as stream:
            await client.submit(inc, 14_000)
            assert stream.data == []
            await client.close()
    assert not stream.is_complete
    assert "the end of the task stream is missing" in caplog.text


def test_a_recording_has_submissions_assignments_and_workers_beside_the_attempts(client):
    with weft.timeline.record(client) as recorder:
        assert recorder.recording.timings == ()
        futures = client.map(inc, range(6000, 6010))
        client.gather(futures)
    found = recorder.recording
    assert found.lacks() == []
    assert {one.key for one in found.timings} >= {future.key for future in futures}
    changes = {(one.change, key) for one in found.changes for key in one.keys}
    assert changes >= {("queued", future.key) for future in futures}
    assert changes >= {("assigned", future.key) for future in futures}
    present = [one for one in found.members if one.change == "present"]
    assert [one.facts["nthreads"] for one in present] == [2, 2]
    assert found.begin <= found.timings[0].stop <= found.end


async def test_a_recording_is_made_by_an_asynchronous_client_too():
    async with (
        weft.Client(n_workers=1, processes=False, asynchronous=True) as client,
        weft.timeline.record(client) as recorder,
    ):
        await client.gather(client.map(inc, range(7000, 7003)))
    assert len(recorder.recording.timings) == 3
    assert {"queued", "assigned"} == {one.change for one in recorder.recording.changes}


def test_a_recording_of_a_cluster_that_ends_has_what_was_read_before(
    caplog,
):
    with (
        weft.LocalCluster(n_workers=1, processes=False) as cluster,
        weft.Client(cluster) as client,
        weft.timeline.record(client) as recorder,
    ):
        client.gather(client.map(inc, range(8000, 8005)))
        wait_until(lambda: recorder.n_attempts == 5, 30, "the attempts are read")
        assert not recorder.is_over
        client.shutdown()
        wait_until(lambda: recorder.is_over, 30, "the end of the cluster")
    assert recorder.failure is not None
    assert len(recorder.recording.timings) == 5
    assert recorder.recording.lacks() == ["the end, since the cluster was gone"]
    assert "the end of the task stream is missing" in caplog.text


def test_a_recording_whose_last_reading_is_interrupted_has_what_was_read_before(
    client, monkeypatch
):
    def interrupt(*_):
        raise KeyboardInterrupt

    recorder = weft.timeline.record(client)
    recorder.__enter__()
    client.gather(client.map(inc, range(9000, 9005)))
    wait_until(lambda: recorder.n_attempts == 5, 30, "the attempts are read")
    stop = recorder._stop
    monkeypatch.setattr(recorder, "_stop", interrupt)
    with pytest.raises(KeyboardInterrupt):
        recorder.__exit__(None, None, None)
    assert len(recorder.recording.timings) == 5
    assert recorder.recording.lacks() == ["the end, which the scheduler had not answered yet"]
    client._run(stop(client))  # ends the task that follows the stream
