"""The methods that show the cluster, and `run`: a whole cluster in this process."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import weft
from weft.client.insight.inspecting import line_of, name_in
from weft.protocol.errors import (
    ForeignFuture,
    NotSupported,
    QuestionFailed,
    SerializationError,
    UnknownWorker,
)
from weft.worker import answering

pytestmark = pytest.mark.slow


@pytest.fixture
def client() -> Iterator[weft.Client]:
    with weft.Client(processes=False, n_workers=2, threads_per_worker=1, name="me") as client:
        yield client


class Gate:
    """Tasks that begin and then wait, as long as a test wants; shared with them in this process."""

    started = threading.Semaphore(0)
    opened = threading.Event()


def wait_at_gate(i: int) -> int:
    Gate.started.release()
    Gate.opened.wait(60)
    return i


@contextmanager
def waiting_tasks(client: weft.Client, n: int) -> Iterator[list[weft.Future]]:
    """Submit `n` tasks; within the block they run and do not end."""
    Gate.opened.clear()
    futures = client.map(wait_at_gate, range(n), pure=False)
    try:
        for _ in range(n):
            assert Gate.started.acquire(timeout=30)
        yield futures
    finally:
        Gate.opened.set()


def inc(i: int) -> int:
    return i + 1


# --- Results and tasks ----------------------------------------------------------------------------


def test_results_and_their_holders(client):
    futures = client.map(inc, range(3))
    client.gather(futures)
    keys = {future.key for future in futures}
    addresses = set(client.nthreads())
    holders = client.who_has(futures)
    assert holders.keys() == keys
    assert all(len(of) == 1 and addresses.issuperset(of) for of in holders.values())
    assert client.who_has() == holders
    held = client.has_what()
    assert held.keys() == addresses
    assert {key for some in held.values() for key in some} == keys
    one = next(iter(addresses))
    assert client.has_what(one) == client.has_what([one]) == {one: held[one]}
    assert client.who_has(futures[0].key) == client.who_has(futures[0])
    assert client.who_has([]) == {}
    assert client.who_has("unknown") == {"unknown": ()}


def test_a_question_about_a_future_comes_after_its_submission(client):
    with waiting_tasks(client, 2):
        future = client.submit(inc, 5)
        assert client.who_has([future]) == {future.key: ()}
        assert client.story(future)[0][:2] == (future.key, "submitted by me")


def test_keys_that_are_tuples_are_shown_as_they_were_given(client):
    future = client.submit(inc, 1, key=("x", 0))
    assert future.result() == 2
    assert list(client.who_has(("x", 0))) == list(client.who_has()) == [("x", 0)]
    assert client.nbytes() == {"x": client.nbytes(summary=False)["x", 0]}


def test_sizes_of_results(client):
    futures = client.map(bytes, [1000, 2000])
    client.gather(futures)
    sizes = client.nbytes(summary=False)
    assert sizes.keys() == {future.key for future in futures}
    assert client.nbytes(futures[:1], summary=False) == {futures[0].key: sizes[futures[0].key]}
    assert client.nbytes() == {"bytes": sum(sizes.values())}
    assert sum(sizes.values()) >= 3000


def test_tasks_that_run_and_their_stacks(client):
    with waiting_tasks(client, 2) as futures:
        keys = {future.key for future in futures}
        processing = client.processing()
        assert {key for some in processing.values() for key in some} == keys
        assert client.processing(list(processing)[:1]) == dict(list(processing.items())[:1])
        stacks = client.call_stack()
        assert {key for of in stacks.values() for key in of} == keys
        (frames, *_) = stacks[next(iter(stacks))].values()
        assert "test_inspection.py" in frames[0]
        assert "in wait_at_gate\n\tGate.opened.wait(60)" in frames[0]
        first = client.call_stack(futures[0])
        assert [list(of) for of in first.values()] == [[futures[0].key]]
        assert client.call_stack(keys=[futures[0].key]) == first
    client.gather(futures)
    assert client.call_stack() == {}
    assert client.call_stack(futures) == {}


def test_a_story_has_all_that_happened_to_a_task(client):
    future = client.submit(inc, 1)
    future.result()
    lines = client.story(future.key)
    key, what, when = lines[-1]
    assert key == future.key
    assert what.startswith("finished on")
    assert when > 1e9
    assert lines == sorted(lines, key=lambda line: line[2])


# --- Processes ------------------------------------------------------------------------------------


def test_threads_of_workers_named_in_several_ways(client):
    threads = client.nthreads()
    assert list(threads.values()) == [1, 1]
    assert client.ncores() == threads
    (address, *_) = threads
    name = client.scheduler_info()["workers"][address]["name"]
    assert client.nthreads(name) == client.nthreads([address]) == {address: 1}


def test_scheduler_info_has_the_fields_that_users_of_dask_know(client):
    info = client.scheduler_info()
    assert (info["type"], info["total_threads"], info["n_workers"]) == ("Scheduler", 2, 2)
    assert info["address"] == client.scheduler_address
    assert info["clients"] == ["me"]
    for address, worker in info["workers"].items():
        assert address.startswith("inproc://")
        assert worker["type"] == "Worker"
        assert worker["status"] == "running"
        assert worker["nthreads"] == 1
    assert len(client.scheduler_info(n_workers=1)["workers"]) == 1


def test_versions(client):
    versions = client.get_versions(check=True, packages=["pytest", "no-such-package"])
    assert versions["client"] == versions["scheduler"]
    assert list(versions["workers"].values()) == [versions["client"]] * 2
    packages = versions["client"]["packages"]
    assert packages["pytest"] == pytest.__version__
    assert packages["no-such-package"] is None
    with pytest.raises(TypeError, match="packages= is a list"):
        client.get_versions(packages="numpy")


def test_different_versions_are_listed():
    from weft.client.insight.inspecting import _check_versions

    def of(version):
        return {"packages": {"weft": "1", "numpy": version}}

    answers = {"client": of("2"), "scheduler": of(None), "workers": {"tcp://w": of("2")}}
    with pytest.raises(ValueError, match=r"numpy: 2 on client, tcp://w; none on scheduler$"):
        _check_versions(answers)
    silent = {"tcp://v": QuestionFailed("no answer")}
    _check_versions({"client": of("2"), "scheduler": of("2"), "workers": silent})


def test_a_cluster_in_the_program_has_the_log_of_the_program(client):
    assert client.get_scheduler_logs() == []
    assert list(client.get_worker_logs().values()) == [[], []]
    (error, *_) = client.get_worker_logs(nanny=True).values()
    assert isinstance(error, QuestionFailed)
    with pytest.raises(ValueError, match="n= is a whole number"):
        client.get_scheduler_logs(n=-1)


def test_a_line_of_a_log_has_time_logger_level_and_text():
    level, line = line_of([0.25, "INFO", "weft.worker", "it works"])
    assert level == "INFO"
    assert line.endswith(",250 - weft.worker - INFO - it works")


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("inc-12ab", "inc"),
        ("inc", "inc"),
        ("my-task", "my-task"),
        ("-1", "-1"),
        (("sum-0a", 0, 1), "sum"),
        ((("x", 1), 2), "x"),
        ((), ""),
    ],
)
def test_the_name_in_a_key(key, name):
    assert name_in(key) == name


# --- run ------------------------------------------------------------------------------------------


def test_a_function_runs_on_each_worker(client):
    names = client.run(lambda: weft.get_worker().name)
    assert names.keys() == client.nthreads().keys()
    assert len(set(names.values())) == 2
    (address, *_) = names
    assert client.run(pow, 2, 3, workers=names[address], mod=5) == {address: 3}


def test_a_parameter_dask_worker_gets_the_worker(client):
    def name_of(prefix, dask_worker=None):
        return prefix, dask_worker and dask_worker.name

    names = {worker["name"] for worker in client.scheduler_info()["workers"].values()}
    assert set(client.run(name_of, "x").values()) == {("x", name) for name in names}
    assert set(client.run(name_of, "x", None).values()) == {("x", None)}
    assert set(client.run(name_of, "x", dask_worker=None).values()) == {("x", None)}


def test_a_function_runs_while_all_slots_are_busy(client):
    with waiting_tasks(client, 2):
        assert list(client.run(inc, 1).values()) == [2, 2]


def test_coroutine_functions_run_on_a_loop_of_their_own(client):
    async def doubled(x):
        await asyncio.sleep(0)
        return 2 * x

    assert list(client.run(doubled, 4).values()) == [8, 8]


def test_a_function_that_is_not_waited_for(client):
    Gate.opened.clear()
    assert list(client.run(wait_at_gate, 1, wait=False).values()) == [None, None]
    for _ in range(2):
        assert Gate.started.acquire(timeout=30)
    Gate.opened.set()


def fail_on(name):
    if weft.get_worker().name == name:
        raise KeyError(name)
    return name


def test_errors_of_a_function(client):
    (victim, *_), addresses = client.run(lambda: weft.get_worker().name).values(), client.nthreads()
    with pytest.raises(KeyError) as caught:
        client.run(fail_on, victim)
    notes = "\n".join(caught.value.__notes__) if hasattr(caught.value, "__notes__") else ""
    if notes:
        assert f"client.run of fail_on on worker {victim}" in notes
        assert "it failed on 1 of 2 workers" in notes
    answers = client.run(fail_on, victim, on_error="return")
    assert answers.keys() == addresses.keys()
    assert sorted(type(answer).__name__ for answer in answers.values()) == ["KeyError", "str"]
    assert list(client.run(fail_on, victim, on_error="ignore").values()) == [victim]
    (returned, *_) = client.run(lambda: KeyError("returned")).values()
    assert isinstance(returned, KeyError)


def test_results_and_exceptions_that_cannot_be_pickled(client):
    answers = client.run(threading.Lock, on_error="return")
    assert {type(answer) for answer in answers.values()} == {weft.UnpicklableResult}
    with pytest.raises(weft.TaskErred, match="SystemExit"):
        client.run(exit, 3)


# --- Wrong arguments ------------------------------------------------------------------------------


def test_workers_are_named_by_an_address_of_their_machine_as_tasks_name_them(client):
    assert client.nthreads(["127.0.0.1"]) == client.nthreads()
    task = client.submit(inc, 3, workers="127.0.0.1", pure=False)
    assert task.result(60) == 4


@pytest.mark.parametrize("method", ["has_what", "processing", "nthreads", "ncores"])
def test_unknown_workers_are_named(client, method):
    with pytest.raises(UnknownWorker, match=r"host 'nowhere'; connected workers: local"):
        getattr(client, method)(["nowhere"])


def test_unknown_workers_of_functions_with_more_parameters(client):
    with pytest.raises(UnknownWorker):
        client.run(inc, 1, workers="nowhere")
    with pytest.raises(UnknownWorker):
        client.get_worker_logs(workers="nowhere")
    with pytest.raises(TypeError, match="not 3"):
        client.has_what([3])
    with pytest.raises(TypeError, match="not 3"):
        client.has_what(3)


def test_futures_of_another_client_are_refused(client):
    with weft.Client(client.cluster, set_as_default=False, name="other") as other:
        future = other.submit(inc, 1)
        with pytest.raises(ForeignFuture, match=r"of this client, me; that of .* another one"):
            client.who_has([future])
        future.result()
        assert client.who_has(future.key)[future.key]


def test_things_that_are_no_futures_are_refused(client):
    with pytest.raises(TypeError, match="who_has takes futures and keys, not int"):
        client.who_has(3)
    with pytest.raises(TypeError):
        client.call_stack([3.5])


def test_bytes_and_numbers_that_no_process_can_read_are_refused_by_name(client):
    with pytest.raises(TypeError, match="who_has takes futures and keys, not bytes"):
        client.who_has(b"key")
    with pytest.raises(TypeError, match="or several; not b'name'"):
        client.has_what(b"name")
    with pytest.raises(TypeError, match="packages= is a list of names of packages"):
        client.get_versions(packages=3)
    assert client.get_scheduler_logs(10**30) == client.get_scheduler_logs()


def test_wrong_calls_of_run_are_refused(client):
    with pytest.raises(TypeError, match="run needs a function, not int"):
        client.run(3)
    with pytest.raises(ValueError, match="on_error= is"):
        client.run(inc, 1, on_error="maybe")
    with pytest.raises(NotSupported, match="supervisors run no functions"):
        client.run(inc, 1, nanny=True)
    with pytest.raises(NotSupported, match="the scheduler runs no functions"):
        client.run_on_scheduler(inc, 1)
    with pytest.raises(TypeError, match="is a future: pass"):
        client.run(inc, client.submit(inc, 1))
    with pytest.raises(SerializationError, match="the call of inc"):
        client.run(inc, threading.Lock())


@pytest.fixture
def answers_of_workers(monkeypatch):
    """Return a function that lets the workers of this process answer a question wrongly."""

    def answer(name, info, next_page=""):
        monkeypatch.setitem(answering._QUESTIONS, name, lambda _self, _ask: (info, next_page, []))

    return answer


@pytest.mark.parametrize("pages", [["again"], ["x", "y", "x"]])
def test_an_answer_without_end_is_an_error_of_that_worker(client, monkeypatch, pages):
    following = itertools.cycle(pages)
    monkeypatch.setitem(
        answering._QUESTIONS,
        "held",
        lambda _self, _ask: ({"keys": [], "nbytes": []}, next(following), []),
    )
    address = next(iter(client.nthreads()))
    (error,) = client.has_what(address).values()
    assert isinstance(error, QuestionFailed)
    assert "its answer has no end" in str(error)
    assert client.submit(inc, 1).result() == 2


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("held", lambda client: client.has_what()),
        ("call_stack", lambda client: client.call_stack()),
        ("logs", lambda client: client.get_worker_logs()),
        ("versions", lambda client: client.get_versions(check=True)["workers"]),
    ],
)
@pytest.mark.parametrize("info", [{}, {"keys": 3, "stacks": [1], "records": [[]], "packages": 5}])
def test_an_answer_that_cannot_be_read_is_an_error_of_that_worker(
    client, answers_of_workers, name, call, info
):
    answers_of_workers(name, info)
    errors = list(call(client).values())
    assert [type(error) for error in errors] == [QuestionFailed] * 2
    assert all("cannot be read" in str(error) for error in errors)


def test_all_sizes_are_not_a_sum_of_some(client, answers_of_workers):
    answers_of_workers("held", {"keys": ["a"], "nbytes": []})
    with pytest.raises(QuestionFailed, match="cannot be read") as caught:
        client.nbytes()
    assert "2 of 2 workers gave no answer" in "".join(caught.value.__notes__)


def test_a_call_of_run_that_is_too_large_is_not_sent(client):
    with pytest.raises(QuestionFailed, match=r"run of len has 64.1 MiB .* limit of 64 MiB"):
        client.run(len, bytes(67_200_000))


def test_a_closed_client_asks_nothing():
    client = weft.Client(processes=False, n_workers=1)
    client.close()
    with pytest.raises(weft.ClientClosed):
        client.who_has()


# --- Asynchronous clients -------------------------------------------------------------------------


async def test_an_asynchronous_client_awaits_the_answers():
    async with weft.Client(processes=False, n_workers=2, asynchronous=True) as client:
        future = client.submit(inc, 1)
        assert await future == 2
        (address,) = (await client.who_has(future))[future.key]
        assert (await client.has_what())[address] == (future.key,)
        assert sum(map(len, (await client.processing()).values())) == 0
        assert list(await client.nbytes()) == ["inc"]
        assert (await client.story(future))[0][0] == future.key
        assert await client.call_stack() == {}
        assert list((await client.get_versions())["workers"]) == list(await client.ncores())
        assert await client.get_scheduler_logs() == []
        assert len(await client.get_worker_logs()) == 2
        assert list((await client.run(inc, 1)).values()) == [2, 2]
        with pytest.raises(UnknownWorker):
            await client.run(inc, 1, workers="nowhere")
        with pytest.raises(NotSupported):
            client.run_on_scheduler(inc)
