"""The data port: what runs on the event loop, what runs on its threads, and what readers get."""

from __future__ import annotations

import asyncio
import threading
from typing import ClassVar

import pytest

from tests.worker.server_kit import ask
from weft.protocol.errors import UnpicklableResult
from weft.protocol.values.serialize import loads
from weft.protocol.wire.messages import GetData
from weft.worker.slots.started import N_SERVING, read_served


class Reduced:
    """Notes the thread that pickles it, and raises what it was made with."""

    threads: ClassVar[list[int]] = []

    def __init__(self, error: BaseException | None, n: int) -> None:
        self.error = error
        self.ballast = bytes(n)

    def __reduce__(self):
        Reduced.threads.append(threading.get_ident())
        if self.error is not None:
            raise self.error
        return str, ("read",)


class Unprintable(Exception):  # so is the text of an error user code
    def __str__(self):
        raise ValueError("no text")


def reduced(name, n):
    errors = {
        "exit": SystemExit(3),
        "interrupt": KeyboardInterrupt(),
        "memory": MemoryError("no room"),
        "unprintable": Unprintable(),
    }
    return Reduced(errors.get(name), n)


def plain(i):
    return [True, 1, 2.5, None, "text", b"bytes"][i]


async def served(cluster, security, *tasks, **options):
    """Run tasks whose results are not wanted; return the worker and a reader of its data port."""
    worker = await cluster.start(**options)
    cluster.scheduler.send(worker, *tasks)
    await cluster.scheduler.until_done(len(tasks))
    return worker, *await ask(worker, security)


async def end(asker, connection):
    connection.close()
    await asyncio.wait_for(asker.closed.wait(), 20)


async def test_user_code_of_small_results_does_not_run_on_the_loop(cluster, security):
    task = cluster.scheduler.task(reduced, "", 1, key="x", wanted=0)
    _, asker, connection = await served(cluster, security, task)
    Reduced.threads.clear()
    connection.send([GetData(request=1, keys=["x"])])
    answer = await asyncio.wait_for(asker.answers.get(), 20)
    assert loads(answer.results[0]) == "read"
    assert Reduced.threads
    assert threading.get_ident() not in Reduced.threads
    await end(asker, connection)


class Slow:
    """Waits in its pickling until the test goes on."""

    entered: ClassVar[list[int]] = []
    go_on = threading.Event()

    def __init__(self, n: int) -> None:
        self.n = n

    def __sizeof__(self):
        return self.n

    def __reduce__(self):
        Slow.entered.append(self.n)
        assert Slow.go_on.wait(20)
        return str, (str(self.n),)


async def all_enter(sizes):
    async def wait():
        while sorted(Slow.entered) != sizes:  # noqa: ASYNC110 - a thread notes it
            await asyncio.sleep(0)

    await asyncio.wait_for(wait(), 20)


@pytest.fixture
def slow():
    Slow.entered.clear()
    Slow.go_on.clear()
    yield Slow
    Slow.go_on.set()


async def test_slow_pickles_hold_up_no_other_reader_and_each_is_noted(
    cluster, security, tmp_path, slow
):
    scheduler = cluster.scheduler
    path = tmp_path / "started"
    sizes = [100_001, 100_002, 100_003]
    tasks = [scheduler.task(Slow, n, key=f"slow{n}", wanted=0) for n in sizes]
    tasks.append(scheduler.task(bytes, 300_000, key="fast", wanted=0))
    worker, asker, connection = await served(cluster, security, *tasks, started_path=path)
    readers = [await ask(worker, security, GetData(request=n, keys=[f"slow{n}"])) for n in sizes]
    await all_enter(sizes)
    connection.send([GetData(request=1, keys=["fast"])])
    answer = await asyncio.wait_for(asker.answers.get(), 20)
    assert loads(answer.results[0]) == bytes(300_000)
    assert sorted(read_served(path)) == [1, 2, 3]
    slow.go_on.set()
    for n, (reader, _) in zip(sizes, readers, strict=True):
        answer = await asyncio.wait_for(reader.answers.get(), 20)
        assert (answer.request, loads(answer.results[0])) == (n, str(n))
    assert read_served(path) == []
    for reader, its_connection in [*readers, (asker, connection)]:
        await end(reader, its_connection)


async def test_results_that_are_large_for_the_worker_are_pickled_one_at_a_time(
    cluster, security, slow
):
    scheduler = cluster.scheduler
    limit = 1 << 40
    large = [limit // 8 + 1, limit // 8 + 2]
    tasks = [scheduler.task(Slow, n, key=f"slow{n}", wanted=0) for n in [*large, 100_000]]
    worker, *first = await served(cluster, security, *tasks, memory_limit=limit)
    readers = [first] + [await ask(worker, security) for _ in range(2)]
    for n, (_, connection) in zip([*large, 100_000], readers, strict=True):
        connection.send([GetData(request=n, keys=[f"slow{n}"])])
        if n == large[0]:
            await all_enter([n])
    await all_enter([100_000, large[0]])
    slow.go_on.set()
    for reader, connection in readers:
        await asyncio.wait_for(reader.answers.get(), 20)
        await end(reader, connection)
    assert Slow.entered.index(large[1]) > Slow.entered.index(large[0])


async def test_a_reader_is_cut_off_if_no_thread_can_be_started_and_later_ones_are_served(
    cluster, security, tmp_path, monkeypatch
):
    path = tmp_path / "started"
    task = cluster.scheduler.task(bytes, 200_000, key="x", wanted=0)
    worker, asker, connection = await served(cluster, security, task, started_path=path)
    start = threading.Thread.start

    def refused(thread):
        if thread.name.startswith("weft-data"):
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        readers = [(asker, connection), *[await ask(worker, security) for _ in range(N_SERVING)]]
        for reader, its_connection in readers:
            its_connection.send([GetData(request=1, keys=["x"])])
            await asyncio.wait_for(reader.closed.wait(), 20)
    assert read_served(path) == []
    asker, connection = await ask(worker, security, GetData(request=2, keys=["x"]))
    answer = await asyncio.wait_for(asker.answers.get(), 20)
    assert loads(answer.results[0]) == bytes(200_000)
    await end(asker, connection)
    assert sorted(worker._server._places) == [*range(N_SERVING)]


async def test_small_results_of_builtin_types_need_no_thread(cluster, security):
    keys = [f"k{i}" for i in range(6)]
    tasks = [cluster.scheduler.task(plain, i, key=key, wanted=0) for i, key in enumerate(keys)]
    worker, asker, connection = await served(cluster, security, *tasks)
    connection.send([GetData(request=1, keys=keys)])
    answer = await asyncio.wait_for(asker.answers.get(), 20)
    assert [loads(blob) for blob in answer.results] == [plain(i) for i in range(6)]
    assert worker._server._threads is None
    await end(asker, connection)


@pytest.mark.parametrize("n", [1, 200_000])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("exit", "SystemExit: 3"),
        ("interrupt", "KeyboardInterrupt"),
        ("memory", "MemoryError: no room; the result takes .* bytes, .* return it in parts"),
        ("unprintable", "ValueError: no text"),
    ],
)
async def test_whatever_a_reduction_raises_is_an_error_for_its_reader_only(
    cluster, security, name, text, n
):
    tasks = [
        cluster.scheduler.task(reduced, name, n, key="bad", wanted=0),
        cluster.scheduler.task(reduced, "", n, key="good", wanted=0),
    ]
    _, asker, connection = await served(cluster, security, *tasks)
    requests = [GetData(request=1, keys=["bad", "good"]), GetData(request=2, keys=["good"])]
    connection.send(requests)
    for request in requests:
        answer = await asyncio.wait_for(asker.answers.get(), 20)
        assert answer.keys == request.keys
        results = dict(zip(answer.keys, answer.results, strict=True))
        assert loads(results["good"]) == "read"
        if "bad" in results:
            with pytest.raises(UnpicklableResult, match=rf"'bad' cannot be pickled.*{text}"):
                loads(results["bad"])
    await end(asker, connection)
