"""Lock, Semaphore, MultiLock, Event, Queue and Variable as users call them, on a real scheduler."""

from __future__ import annotations

import pickle
import threading

import pytest

import weft
from weft import Client, CountDown, Event, Lock, MultiLock, Queue, Semaphore, Variable
from weft.client.core.features.coordination import calls_of
from weft.protocol.errors import (
    AlreadyHeld,
    ClientClosed,
    ForeignFuture,
    HeldClosed,
    InvalidDuration,
    NotHeld,
    OtherLimit,
    SerializationError,
    TooLarge,
)

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]


def in_thread(call, *args, **options):
    """Call in another thread; return a function that waits for its result."""
    found = []

    def run():
        try:
            found.append(call(*args, **options))
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()

    def result():
        thread.join(30)
        assert not thread.is_alive()
        return found[0]

    return result


# --- Locks ----------------------------------------------------------------------------------------


def test_a_lock_excludes_other_clients(client, other):
    mine, theirs = Lock("a"), Lock("a", client=other)
    assert mine.acquire() is True
    assert mine.locked() is True
    assert theirs.acquire(blocking=False) is False
    assert theirs.acquire(timeout=0.01) is False
    waits = in_thread(theirs.acquire)
    mine.release()
    assert waits() is True
    theirs.release()
    assert mine.locked() is False


def test_a_lock_excludes_threads_that_share_the_object(client):
    lock = Lock()
    total = [0]

    def add():
        for _ in range(20):
            with lock:
                before = total[0]
                lock.locked()  # time in which another thread could come between
                total[0] = before + 1

    results = [in_thread(add) for _ in range(4)]
    assert [result() for result in results] == [None] * 4
    assert total == [80]


def test_a_lock_taken_twice_by_one_thread_is_an_error_and_stays_held(client):
    lock = Lock("twice")
    with lock:
        with pytest.raises(AlreadyHeld, match="would never be acquired"):
            lock.acquire()
        with pytest.raises(AlreadyHeld):
            Lock("twice").acquire()
        assert lock.acquire(timeout=0.01) is False
        assert lock.locked()
    assert not lock.locked()


def test_a_lock_is_released_only_by_the_object_that_holds_it(client):
    lock = Lock("mine")
    with pytest.raises(NotHeld, match="'mine' is not held by this object"):
        lock.release()
    with lock, pytest.raises(NotHeld):
        pickle.loads(pickle.dumps(lock)).release()


def test_a_lock_is_released_when_its_client_closes(cluster, client):
    with Client(cluster, set_as_default=False) as other:
        Lock("left", client=other).acquire()
        waits = in_thread(Lock("left").acquire, timeout=30)
    assert waits() is True
    Lock("left", client=client)


def test_an_exception_in_the_block_releases_the_lock(client):
    with pytest.raises(ZeroDivisionError), Lock("raising"):
        1 / 0
    assert not Lock("raising").locked()


def test_wrong_arguments_of_locks_are_named(client):
    with pytest.raises(TypeError, match="the name of a Lock is a str, not int"):
        Lock(5)
    with pytest.raises(ValueError, match="1 to 1024 characters, not 0"):
        Lock("")
    with pytest.raises(TypeError, match=r"client= is a weft\.Client, not str"):
        Lock("a", client="b")
    with pytest.raises(ValueError, match="of no use with blocking=False"):
        Lock("a").acquire(blocking=False, timeout=1)
    with pytest.raises(InvalidDuration):
        Lock("a").acquire(timeout=-1)
    with pytest.raises(ValueError, match="max_leases= is from 1"):
        Semaphore(-1)
    with pytest.raises(TypeError, match="max_leases= is an int"):
        Semaphore("a")
    with pytest.raises(ValueError, match="at least one name"):
        MultiLock([])
    with pytest.raises(TypeError, match="a list of names, not str"):
        MultiLock("ab")
    with pytest.raises(ValueError, match="num_locks= is from 1 to 2, not 3"):
        MultiLock(["a", "b"]).acquire(num_locks=3)


def test_a_semaphore_counts_leases_and_has_one_limit(client):
    semaphore = Semaphore(2, name="pair")
    assert semaphore.acquire()
    assert semaphore.acquire()
    assert semaphore.get_value() == 2
    assert semaphore.acquire(timeout=0.01) is False
    with pytest.raises(AlreadyHeld, match="all 2 of its leases"):
        semaphore.acquire()
    with pytest.raises(OtherLimit, match="has max_leases=2, and not 3"):
        Semaphore(3, name="pair").register()
    semaphore.release()
    semaphore.release()
    with pytest.raises(NotHeld):
        semaphore.release()
    semaphore.close()
    with pytest.raises(HeldClosed, match="was closed"):
        semaphore.acquire()
    assert Semaphore(3, name="pair").acquire()


def test_several_locks_are_taken_together(client, other):
    with MultiLock(["x", "y"]) as mine:
        assert mine.locked()
        assert MultiLock(["y", "z"], client=other).acquire(blocking=False) is False
        some = MultiLock(["y", "z"], client=other)
        assert some.acquire(num_locks=1)
        assert some.acquire(timeout=0.01) is False
        some.release()
    assert not mine.locked()
    assert MultiLock(["y", "z"], client=other).acquire(timeout=5)


# --- Events ---------------------------------------------------------------------------------------


def test_an_event_lets_waiting_clients_go_on(client, other):
    event = Event("go")
    assert event.wait(timeout=0.01) is False
    waits = in_thread(Event("go", client=other).wait)
    event.set()
    assert waits() is True
    assert event.is_set()
    event.clear()
    assert not event.is_set()


# --- Queues and variables -------------------------------------------------------------------------


def test_a_latch_opens_when_clients_and_tasks_have_counted_it_down(client, other):
    latch = CountDown(n=3)
    waits = in_thread(CountDown(latch.name, 3, client=other).wait, timeout="60 s")
    assert latch.wait(timeout=0.01) is False
    client.gather(client.map(lambda latch, _: latch.count_down(), [latch] * 2, range(2)))
    assert latch.count() == 1
    assert latch.count_down() == 0
    assert waits() is True
    with pytest.raises(OtherLimit, match=r"has n=3, and not 2"):
        CountDown(latch.name, 2).wait()


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"n": 0}, ValueError, "n= is from 1 to"),
        ({"n": 1.0}, TypeError, "n= is an int, not float"),
        ({"n": True}, TypeError, "n= is an int, not bool"),
    ],
)
def test_a_latch_counts_down_from_a_whole_number(client, arguments, error, text):
    with pytest.raises(error, match=text):
        CountDown("wrong", **arguments)
    with pytest.raises(error, match=text.replace("n=", "k=")):
        CountDown("wrong").count_down(arguments["n"])


@pytest.mark.parametrize(
    ("kind", "waits"), [(Event, "wait"), (CountDown, "wait"), (Variable, "get")]
)
def test_waits_for_what_others_have_set_are_known_as_such(client, kind, waits):
    made = kind("p")._made
    assert made(waits, None, None, None, None)[0].awaits_set
    assert not made("other", None, None, None, None)[0].awaits_set


def test_a_queue_hands_values_on_in_order(client, other):
    queue = Queue("values")
    values = [1, "two", {"three": [3.0]}, None, b"5"]
    for value in values:
        queue.put(value)
    assert queue.qsize() == 5
    theirs = Queue("values", client=other)
    assert theirs.get() == 1
    assert theirs.get(batch=2) == values[1:3]
    assert theirs.get(batch=True) == values[3:]
    assert theirs.get(batch=True) == []
    with pytest.raises(TimeoutError, match=r"not enough values in queue 'values' within 0\.01 s"):
        theirs.get(timeout=0.01)


def test_a_queue_with_a_size_lets_put_wait(client, other):
    queue = Queue("short", maxsize=1)
    queue.put(1)
    with pytest.raises(TimeoutError, match=r"no room in queue 'short' within 0\.01 s"):
        queue.put(2, timeout=0.01)
    waits = in_thread(queue.put, 3)
    assert Queue("short", client=other).get() == 1
    assert waits() is None
    assert queue.get() == 3
    with pytest.raises(OtherLimit, match="has maxsize=1, and not 2"):
        Queue("short", maxsize=2).put(1)


def test_a_closed_queue_fails_those_that_wait(client, other, wait_until):
    queue = Queue("closing")
    waits = in_thread(Queue("closing", client=other).get)
    queue.put("first")
    assert waits() == "first"
    waits = in_thread(Queue("closing", client=other).get)
    wait_until(lambda: calls_of(other._engine.core).pending)
    Queue("another", client=other).qsize()  # the call before it has been read: names begin anew
    queue.close()
    assert isinstance(waits(), HeldClosed)
    with pytest.raises(HeldClosed):
        queue.put(1)
    assert Queue("closing").qsize() == 0


def test_futures_in_queues_and_variables_outlive_their_client(cluster, client):
    with Client(cluster, set_as_default=False) as other:
        future = other.submit(abs, -7)
        Queue("futures", client=other).put({"deep": [future, future]})
        Variable("future", client=other).set(other.submit(abs, -8))
    got = Queue("futures").get()
    assert [f.result(30) for f in got["deep"]] == [7, 7]
    assert Variable("future").get().result(30) == 8
    Variable("future").delete()


def test_futures_are_forgotten_with_the_last_value_that_has_them(client, wait_until):
    queue = Queue("last")
    queue.put(client.submit(abs, -9))
    queue.get().result(30)
    queue.close()
    wait_until(lambda: client.scheduler_info()["tasks"]["memory"] == 0)


def test_a_variable_has_the_last_value(client, other):
    variable = Variable("number")
    with pytest.raises(TimeoutError, match=r"variable 'number' was not set within 0\.01 s"):
        variable.get(timeout=0.01)
    waits = in_thread(Variable("number", client=other).get)
    variable.set(5)
    assert waits() == 5
    variable.set([6])
    assert variable.get() == [6]
    variable.delete()
    with pytest.raises(TimeoutError):
        variable.get(timeout=0)


def test_wrong_values_are_refused_with_advice(client):
    queue = Queue("wrong")
    with pytest.raises(TooLarge, match="put its future"):
        queue.put(bytes(5 << 20))
    with pytest.raises(SerializationError):
        queue.put(threading.Lock())
    future = client.submit(abs, 1)
    future.release()
    with pytest.raises(SerializationError, match="was released"):
        queue.put(future)
    for batch in (0, -1, "all", None):
        with pytest.raises(ValueError, match="batch= is"):
            queue.get(batch=batch)
    with pytest.raises(ValueError, match="maxsize= is from 0"):
        Queue("wrong", maxsize=-1)
    with pytest.raises(TypeError, match="maxsize= is an int"):
        Queue("wrong", maxsize=True)
    assert queue.qsize() == 0


# --- Objects --------------------------------------------------------------------------------------


def test_an_object_is_made_without_a_client_and_used_when_there_is_one(cluster):
    lock, queue = Lock("later"), Queue("later")
    with pytest.raises(ClientClosed, match="make one first"):
        lock.acquire()
    with Client(cluster):
        assert lock.acquire()
        queue.put(1)
        queue.close()
    with pytest.raises(ClientClosed):
        lock.release()
    with Client(cluster):
        assert lock.acquire(timeout=30)


# --- Holders --------------------------------------------------------------------------------------


def test_a_thread_releases_its_own_lease_of_an_object_that_threads_share(client):
    """Else the scheduler would take it for the holder of the other one: see `AlreadyHeld`."""
    shared = Semaphore(2, "shared by threads")
    assert in_thread(shared.acquire)() is True
    of_the_other = dict(shared._leases)
    assert shared.acquire()
    shared.release()
    assert shared._leases == of_the_other
    shared.release()
    with pytest.raises(NotHeld):
        shared.release()
    assert shared.get_value() == 0


# --- Wrong values and names -----------------------------------------------------------------------


def test_futures_of_another_cluster_are_refused(client):
    """Also if this cluster has a task of the same key, which is another one."""
    options = {"n_workers": 1, "processes": False, "set_as_default": False}
    with Client(**options) as elsewhere:
        theirs = elsewhere.submit(abs, -3)
        assert theirs.result(timeout=60) == 3
        mine = client.submit(abs, -3)
        assert mine.key == theirs.key
        for call in (
            lambda: Queue("foreign").put([theirs]),
            lambda: Variable("foreign").set(theirs),
            lambda: client.publish_dataset(theirs, name="foreign"),
        ):
            with pytest.raises(ForeignFuture, match="is in a value for the cluster at"):
                call()
    assert Queue("foreign").qsize() == 0


def test_futures_of_another_client_of_the_cluster_are_taken(client, other):
    queue = Queue("lent")
    for n in range(20):
        queue.put(other.submit(add_slowly, n, pure=False))
    assert [queue.get().result(timeout=60) for _ in range(20)] == list(range(1, 21))


def add_slowly(n):
    Event("never").wait(0.001)
    return n + 1


@pytest.mark.parametrize(
    "make",
    [
        lambda name: weft.default_client().set_metadata(["ok", name], 1),
        lambda name: weft.default_client().publish_dataset(1, name=name),
        lambda name: weft.default_client().log_event(["ok", name], 1),
    ],
)
def test_names_that_cannot_be_sent_are_refused(client, make):
    with pytest.raises(ValueError, match=r"is no valid Unicode: .* at position 1 is a surrogate"):
        make("a\udc80")
    with pytest.raises(ValueError, match="1 to 1024 characters, not 1025"):
        make("a" * 1025)
    with pytest.raises(TypeError, match=r"name of a .* is a str"):
        make(b"5")


def test_wrong_arguments_are_refused_before_they_are_sent(client):
    with pytest.raises(ValueError, match="at most 10000 names, not 20000"):
        MultiLock(map(str, range(20_000)))
    with pytest.raises(ValueError, match="at most 10000 values at once"):
        Queue().get(batch=20_000)
    with pytest.raises(ValueError, match="needs the name of a topic"):
        client.log_event([], 1)
    with pytest.raises(ValueError, match="a text in metadata is no valid Unicode"):
        client.set_metadata("a", ["\ud800"])
