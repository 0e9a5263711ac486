"""`explain` of futures and keys, on a cluster in this process."""

from __future__ import annotations

import threading

import pytest

import weft
from weft.client.insight.explaining import Explanation
from weft.client.results import lateness


@pytest.fixture(scope="module")
def client():
    with weft.Client(n_workers=1, threads_per_worker=1, processes=False) as client:
        yield client


begun = threading.Event()
go_on = threading.Event()


def hold_on(x):
    begun.set()
    assert go_on.wait(60)
    return x


def add(x, y):
    return x + y


def test_a_task_is_explained_from_its_inputs_to_the_line_that_runs(client):
    begun.clear()
    go_on.clear()
    first = client.submit(hold_on, 1)
    last = client.submit(add, first, 2, key=("part", 3))
    try:
        assert begun.wait(60)
        found = last.explain()
        assert found.key == ("part", 3)
        assert [step[0] for step in found.steps] == [("part", 3), first.key]
        assert any("assert go_on.wait(60)" in frame for frame in found.stack)
        assert "it is now at" in str(found)
        assert repr(found) == str(found)
        assert client.explain(first.key).steps == found.steps[1:]
    finally:
        go_on.set()
    assert last.result(60) == 3
    done = client.explain(("part", 3))
    assert done.state == "memory"
    assert done.reason.startswith("its result is on ")
    assert done.times["run"] > 0
    assert "run" in str(done)


def test_knowledge_of_the_client_alone_is_explained_too(client):
    future = client.submit(add, 1, 1, resources={"none": 1})
    assert "no worker offers none: 1" in future.explain().reason
    future.cancel(reason="on purpose")
    assert "on purpose" in future.explain().reason
    assert future.explain().state == "unknown"


def test_wrong_questions_are_refused(client):
    future = client.submit(add, 2, 2)
    for wrong in (None, 3, [], [future, "x"]):
        with pytest.raises(TypeError, match="explain takes"):
            client.explain(wrong)
    with pytest.raises(weft.QuestionFailed, match="knows no task 'nothing'"):
        client.explain("nothing")
    with weft.Client(client.cluster, set_as_default=False) as other:
        with pytest.raises(weft.ForeignFuture, match="explain takes futures of this client"):
            other.explain(future)
        assert other.explain(future.key).state in ("processing", "memory")
    with pytest.raises(weft.ClientClosed):
        other.explain(future.key)
    future.release()
    with pytest.raises(ValueError, match="was released"):
        future.explain()


async def test_an_asynchronous_client_awaits_explanations():
    options = {"n_workers": 1, "threads_per_worker": 1, "processes": False}
    async with weft.Client(asynchronous=True, **options) as client:
        future = client.submit(add, 1, 2)
        await future
        for found in (await future.explain(), await client.explain(future)):
            assert isinstance(found, Explanation)
            assert found.state == "memory"


@pytest.fixture
def patience(monkeypatch):
    """Have errors wait for the scheduler's reasons, however busy this machine is."""
    monkeypatch.setattr(lateness, "MAX_ASKING_S", 60)


GPU = "no worker offers GPU: 1 (1 worker is connected)"


@pytest.mark.slow
def test_a_timeout_says_why_the_task_is_not_done(client, patience):
    first = client.submit(add, 1, 1, resources={"GPU": 1})
    last = client.submit(add, first, 2)
    own = f"; its task is set aside: {GPU}"
    of_input = f"; its task waits for {first.key!r}, which is set aside: {GPU}"
    for future, why in ((first, own), (last, of_input)):
        with pytest.raises(TimeoutError) as late:
            future.result(0.1)
        assert str(late.value) == f"no result of {future.key!r} within 0.1 s{why}"
        with pytest.raises(TimeoutError) as late:
            future.exception(0.1)
        assert str(late.value) == f"{future.key!r} was not done within 0.1 s{why}"


@pytest.mark.slow
def test_a_timeout_of_many_tasks_says_each_reason_of_the_first_ones_once(client, patience):
    begun.clear()
    go_on.clear()
    aside = [client.submit(add, i, 1, resources={"GPU": 1}) for i in range(2)]
    running = client.submit(hold_on, 2)
    assert begun.wait(60)
    aside_text = f"; {aside[0].key!r} is set aside: {GPU}"
    other_text = f"; {running.key!r} is at a worker: "
    try:
        for call in (
            lambda fs: client.gather(fs, timeout=0.1),
            lambda fs: weft.wait(fs, timeout=0.1),
            lambda fs: list(weft.as_completed(fs, timeout=0.1)),
        ):
            with pytest.raises(TimeoutError, match=r"^3 (of 3 results|of 3 futures|futures) ") as e:
                call([*aside, running])
            assert aside_text + other_text in str(e.value)
            assert aside[1].key not in str(e.value)
    finally:
        go_on.set()
    assert running.result(60) == 2


@pytest.mark.slow
async def test_timeouts_of_an_asynchronous_client_say_why_too(patience):
    async with weft.Client(
        n_workers=1, threads_per_worker=1, processes=False, asynchronous=True
    ) as client:
        future = client.submit(add, 1, 1, workers="nope")
        why = "is set aside: no connected worker is named nope"
        for call in (
            future.result(0.1),
            future.exception(0.1),
            client.gather([future], timeout=0.1),
            weft.wait([future], timeout=0.1),
            weft.as_completed([future], timeout=0.1).__anext__(),
        ):
            with pytest.raises(TimeoutError, match=why):
                await call
