"""Laws that hold for each class of coordination objects: one table, and one test for each law."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

import weft
from weft import Client, CountDown, Event, Lock, MultiLock, Queue, Semaphore, Variable
from weft.client.coordination.concurrency_limits import Limit
from weft.client.coordination.coordination_object import CoordinationObject
from weft.protocol.errors import ClientClosed

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]


@dataclass(frozen=True)
class Row:
    """How a class is used: made with a name and a client, waited for, and let go."""

    make: Callable[..., Any]
    #: (object, its time limit)
    wait: Callable[[Any, Any], Any]
    #: what a wait returns
    answer: Any
    #: ends the wait of another object
    let_go: Callable[[Any], Any]
    #: makes others wait
    hold: Callable[[Any], Any] = lambda _shared: None
    #: what a late wait returns; None = it raises TimeoutError
    late: Any = False


def acquired(make: Callable[..., Any]) -> Row:
    return Row(
        make,
        wait=lambda shared, timeout: shared.acquire(timeout=timeout),
        answer=True,
        let_go=lambda shared: shared.release(),
        hold=lambda shared: shared.acquire(),
    )


ROWS: dict[type, Row] = {
    Lock: acquired(Lock),
    Semaphore: acquired(lambda name, client=None: Semaphore(1, name, client=client)),
    MultiLock: acquired(lambda name, client=None: MultiLock(["of several", name], client=client)),
    Limit: acquired(lambda name, client=None: weft.limit(name, 1, client=client)),
    Event: Row(
        Event,
        wait=lambda event, timeout: event.wait(timeout),
        answer=True,
        let_go=lambda event: event.set(),
    ),
    CountDown: Row(
        CountDown,
        wait=lambda latch, timeout: latch.wait(timeout),
        answer=True,
        let_go=lambda latch: latch.count_down(),
    ),
    Queue: Row(
        Queue,
        wait=lambda queue, timeout: queue.get(timeout=timeout),
        answer=7,
        let_go=lambda queue: queue.put(7),
        late=None,
    ),
    Variable: Row(
        Variable,
        wait=lambda variable, timeout: variable.get(timeout=timeout),
        answer=7,
        let_go=lambda variable: variable.set(7),
        late=None,
    ),
}
CLASSES = pytest.mark.parametrize("cls", ROWS, ids=lambda cls: cls.__name__)


def public_classes(base: type = CoordinationObject) -> Iterator[type]:
    """Yield the classes of objects that users make."""
    for cls in base.__subclasses__():
        if not cls.__subclasses__() and not cls.__name__.startswith("_"):
            yield cls
        yield from public_classes(cls)


def test_each_class_is_in_the_table() -> None:
    assert {cls.__name__ for cls in public_classes()} == {cls.__name__ for cls in ROWS}


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses."""
    return str(request.node.name)


@CLASSES
def test_a_wait_ends_when_another_client_lets_go(
    client: Client, other: Client, cls: type, name: str
) -> None:
    row = ROWS[cls]
    mine, theirs = row.make(name), row.make(name, client=other)
    row.hold(theirs)
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(row.wait, mine, 30)
        row.let_go(theirs)
        assert waits.result(30) == row.answer


@CLASSES
def test_a_wait_ends_in_time(client: Client, other: Client, cls: type, name: str) -> None:
    row = ROWS[cls]
    row.hold(row.make(name, client=other))
    for limit in (0.01, "10ms", 0):
        if row.late is None:
            with pytest.raises(TimeoutError):
                row.wait(row.make(name), limit)
        else:
            assert row.wait(row.make(name), limit) is row.late


@CLASSES
def test_a_wait_ends_with_its_client(
    cluster: weft.LocalCluster, other: Client, cls: type, name: str
) -> None:
    row = ROWS[cls]
    row.hold(row.make(name, client=other))
    client = Client(cluster, set_as_default=False)
    shared = row.make(name, client=client)
    started = threading.Event()

    def wait() -> None:
        started.set()
        row.wait(shared, None)

    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(wait)
        assert started.wait(30)
        client.close()
        with pytest.raises(ClientClosed):
            waits.result(30)
    with pytest.raises(ClientClosed):
        row.wait(shared, None)


@CLASSES
def test_a_cancelled_wait_takes_nothing(
    cluster: weft.LocalCluster, other: Client, cls: type, name: str
) -> None:
    row = ROWS[cls]
    theirs = row.make(name, client=other)
    row.hold(theirs)

    async def main() -> None:
        async with Client(cluster, asynchronous=True) as client:
            wait = asyncio.ensure_future(row.wait(row.make(name, client=client), None))
            await asyncio.sleep(0)
            wait.cancel()
            await asyncio.gather(wait, return_exceptions=True)
            await asyncio.to_thread(row.let_go, theirs)
            assert await row.wait(row.make(name, client=client), 30) == row.answer

    asyncio.run(main())


@CLASSES
def test_an_object_is_awaited_once_or_twice_and_returns_itself(
    cluster: weft.LocalCluster, cls: type, name: str
) -> None:
    async def main() -> None:
        async with Client(cluster, asynchronous=True) as client:
            shared = ROWS[cls].make(name)
            assert await shared is shared
            assert await shared is shared
            assert shared.client is client

    asyncio.run(main())


@CLASSES
def test_an_object_knows_its_client(client: Client, other: Client, cls: type, name: str) -> None:
    make = ROWS[cls].make
    mine, theirs = make(name), make(name, client=other)
    assert mine.client is client
    assert theirs.client is other
    assert pickle.loads(pickle.dumps(theirs)).client is client
    other.close()
    assert theirs.client is other


@CLASSES
def test_an_object_is_made_without_a_client_and_used_when_there_is_one(
    cluster: weft.LocalCluster, cls: type, name: str
) -> None:
    row = ROWS[cls]
    shared = row.make(name)
    assert shared.client is None
    with pytest.raises(ClientClosed, match="make one first"):
        row.wait(shared, 0)
    with Client(cluster) as client:
        row.hold(shared)
        row.let_go(shared)
        assert shared.client is client


@CLASSES
def test_an_object_is_pickled_by_its_name(cls: type, name: str) -> None:
    before = ROWS[cls].make(name)
    after = pickle.loads(pickle.dumps(before))
    assert type(after) is type(before)
    assert repr(after) == repr(before)
    assert after._limits() == before._limits()


@CLASSES
def test_the_repr_of_an_object_is_of_one_line_whatever_its_name(cls: type) -> None:
    text = repr(ROWS[cls].make("a\nb\x1b[1m"))
    assert text.isprintable()
    assert cls.__name__ in text


@CLASSES
def test_a_name_that_cannot_be_sent_is_refused(cls: type) -> None:
    make = ROWS[cls].make
    with pytest.raises(ValueError, match=r"is no valid Unicode: .* at position 1 is a surrogate"):
        make("a\udc80")
    with pytest.raises(ValueError, match="1 to 1024 characters, not 1025"):
        make("a" * 1025)
    with pytest.raises(TypeError, match=r"name of a .* is a str"):
        make(b"5")


@CLASSES
@pytest.mark.parametrize("is_awaited", [False, True], ids=["blocking", "awaited"])
def test_a_wait_ends_in_time_while_the_scheduler_is_away(
    scheduler: Any, cls: type, is_awaited: bool
) -> None:
    row = ROWS[cls]

    def late(wait: Callable[[], Any]) -> None:
        if row.late is None:
            with pytest.raises(TimeoutError, match=r"did not answer get of .* within 0\.1 s$"):
                wait()
        else:
            assert wait() is row.late

    if is_awaited:

        async def main() -> Any:
            async with Client(scheduler, asynchronous=True) as client:
                scheduler.disappear()
                return await row.wait(row.make("x", client=client), 0.1)

        late(lambda: asyncio.run(main()))
    else:
        with Client(scheduler, set_as_default=False) as client:
            scheduler.disappear()
            late(lambda: row.wait(row.make("x", client=client), 0.1))
