"""Locks, queues and the like, which programs share (1.5)."""

from __future__ import annotations

from .row import Call

SHARED = [
    Call(
        "Lock(name): acquire, release, locked",
        """
    lock = dd.Lock("l1")
    (lock.acquire(), lock.locked(), lock.release(), lock.locked())[1::2] == (True, False)
    """,
    ),
    Call(
        "Lock.acquire(timeout=)",
        """
    dd.Lock("l2").acquire()
    dd.Lock("l2").acquire(timeout=0.1) is False
    """,
    ),
    Call(
        "Lock.acquire(blocking=False)",
        """
    dd.Lock("l3").acquire()
    dd.Lock("l3").acquire(blocking=False) is False
    """,
    ),
    Call(
        "with Lock()",
        """
    with dd.Lock("l4") as lock: pass
    True
    """,
    ),
    Call(
        "async with Lock()",
        """
    async def main():
        async with connected(asynchronous=True) as other:
            with other.as_current():
                async with dd.Lock("l5"):
                    return True
    run(main())
    """,
    ),
    Call(
        "Lock(scheduler_rpc=, loop=)",
        'dd.Lock("l6", scheduler_rpc=None, loop=None) is not None',
        'dd.Lock("l6", client=client) is not None',
        "`Lock(name, client=)`",
    ),
    Call(
        "pickle.dumps(lock): every one of them is its name",
        """
    things = [dd.Lock("q"), dd.Semaphore(1, "q"), dd.Event("q"), dd.Queue("q"), dd.Variable("q")]
    [type(x).__name__ for x in client.submit(lambda given: given, things).result()] == [
        type(x).__name__ for x in things]
    """,
    ),
    Call(
        "Semaphore(max_leases, name): acquire, release, get_value",
        """
    s = dd.Semaphore(2, "s1")
    s.acquire()
    n = s.get_value()
    s.release()
    n == 1
    """,
    ),
    Call(
        "Semaphore.acquire(timeout=)",
        """
    s = dd.Semaphore(1, "s2")
    s.acquire()
    s.acquire(timeout=0.1) is False
    """,
    ),
    Call(
        "Semaphore.register(), close()",
        """
    s = dd.Semaphore(1, "s3")
    s.acquire()
    s.release()
    s.close() is None
    """,
    ),
    Call(
        "with Semaphore()",
        """
    with dd.Semaphore(1, "s4"): pass
    True
    """,
    ),
    Call(
        "await Semaphore()",
        """
    async def main():
        async with connected(asynchronous=True) as other:
            with other.as_current():
                s = await dd.Semaphore(1, "s5")
                return await s.acquire()
    run(main())
    """,
    ),
    Call(
        "Semaphore(scheduler_rpc=, loop=)",
        'dd.Semaphore(1, "s6", scheduler_rpc=None, loop=None) is not None',
        'dd.Semaphore(1, "s6", client=client) is not None',
        "`Semaphore(n, name, client=)`",
    ),
    Call(
        "MultiLock(names): acquire, release, locked",
        """
    m = dd.MultiLock(["a", "b"])
    m.acquire()
    held = m.locked()
    m.release()
    held
    """,
    ),
    Call(
        "MultiLock.acquire(num_locks=)",
        """
    m = dd.MultiLock(["c", "d"])
    m.acquire(num_locks=1)
    """,
    ),
    Call(
        "MultiLock.acquire(blocking=, timeout=)",
        """
    m = dd.MultiLock(["e"])
    m.acquire()
    dd.MultiLock(["e"]).acquire(timeout=0.1) is False
    """,
    ),
    Call(
        "with MultiLock()",
        """
    with dd.MultiLock(["f"]): pass
    True
    """,
    ),
    Call(
        "Event(name): set, is_set, clear",
        """
    e = dd.Event("e1")
    e.set()
    was = e.is_set()
    e.clear()
    was and not e.is_set()
    """,
    ),
    Call(
        "Event.wait(timeout=)",
        'dd.Event("e2").wait(timeout=0.1) is False',
    ),
    Call(
        "Queue(name): put, get, qsize",
        """
    q = dd.Queue("q1")
    q.put(1)
    (q.qsize(), q.get()) == (1, 1)
    """,
    ),
    Call(
        "Queue(maxsize=), put(timeout=)",
        """
    q = dd.Queue("q2", maxsize=1)
    q.put(1)
    isinstance(error_of(q.put, 2, timeout=0.1), TimeoutError)
    """,
    ),
    Call(
        "Queue.get(timeout=)",
        'isinstance(error_of(dd.Queue("q3").get, timeout=0.1), TimeoutError)',
    ),
    Call(
        "Queue.get(batch=)",
        """
    q = dd.Queue("q4")
    q.put(1)
    q.put(2)
    list(q.get(batch=True)) == [1, 2]
    """,
    ),
    Call(
        "Queue.get(batch=n)",
        """
    q = dd.Queue("q5")
    q.put(1)
    q.put(2)
    list(q.get(batch=1)) == [1]
    """,
    ),
    Call(
        "Queue: futures",
        """
    q = dd.Queue("q6")
    q.put(client.submit(inc, 1))
    q.get().result() == 2
    """,
    ),
    Call(
        "Queue.close()",
        """
    q = dd.Queue("q7")
    q.put(1)
    q.close()
    True
    """,
    ),
    Call(
        "await Queue()",
        """
    async def main():
        async with connected(asynchronous=True) as other:
            with other.as_current():
                q = await dd.Queue("q8")
                await q.put(1)
                return await q.get()
    run(main()) == 1
    """,
    ),
    Call(
        "Variable(name): set, get",
        """
    v = dd.Variable("v1")
    v.set(1)
    v.get() == 1
    """,
    ),
    Call(
        "Variable: futures",
        """
    v = dd.Variable("v2")
    v.set(client.submit(inc, 1))
    v.get().result() == 2
    """,
    ),
    Call(
        "Variable.set(timeout=), get(timeout=)",
        """
    dd.Variable("v3").set(1, timeout="5s")
    isinstance(error_of(dd.Variable("v4").get, timeout=0.1), TimeoutError)
    """,
    ),
    Call(
        "Variable.delete()",
        """
    v = dd.Variable("v5")
    v.set(1)
    v.delete()
    True
    """,
    ),
]
