"""Futures, and functions of them (1.3)."""

from __future__ import annotations

from .row import Call

FUTURE = [
    Call(
        "Future.key, status, type",
        """
    f = client.submit(inc, 1)
    dd.wait(f)
    f.status == "finished" and "int" in str(f.type)
    """,
        """
    f = client.submit(inc, 1)
    f.result()
    (f.status, f.type) == ("finished", int)
    """,
        "`type` is known once the result is here",
    ),
    Call(
        "Future.status of failed, cancelled, lost",
        """
    f, g = client.submit(fail, pure=False), held()
    dd.wait(f)
    g.cancel()
    until(g.cancelled) and (f.status, g.status) == ("error", "cancelled")
    """,
    ),
    Call(
        "Future.done()",
        """
    f = client.submit(inc, 1)
    dd.wait(f)
    f.done()
    """,
    ),
    Call(
        "Future.result(timeout=)",
        'client.submit(inc, 1).result(timeout="10s") == 2',
    ),
    Call(
        "Future.result: TimeoutError",
        """
    f = held()
    error = error_of(f.result, timeout=0.1)
    isinstance(error, dd.TimeoutError) and isinstance(error, TimeoutError)
    """,
    ),
    Call(
        "Future.exception(timeout=)",
        "isinstance(client.submit(fail, pure=False).exception(timeout=10), ValueError)",
    ),
    Call(
        "Future.traceback(timeout=)",
        """
    import traceback
    f = client.submit(fail, pure=False)
    "fail" in "".join(traceback.format_tb(f.traceback(timeout=10)))
    """,
    ),
    Call(
        "Future.add_done_callback(f)",
        """
    seen = []
    client.submit(inc, 400).add_done_callback(seen.append)
    until(lambda: seen)
    """,
    ),
    Call(
        "Future.cancel(), cancelled()",
        """
    f = held()
    f.cancel()
    until(f.cancelled)
    """,
    ),
    Call(
        "Future.cancel(reason=, msg=)",
        """
    f = held()
    f.cancel(reason="why", msg="because")
    "why" in str(error_of(f.result)) or "because" in str(error_of(f.result))
    """,
    ),
    Call(
        "Future.retry()",
        """
    f = client.submit(once, str(folder / "fr"), pure=False)
    dd.wait(f)
    f.retry()
    f.result() == "second"
    """,
    ),
    Call(
        "Future.release(): the last one of a key releases it",
        """
    f = client.submit(inc, 401)
    f.result(), f.release()
    until(lambda: not client.who_has().get(f.key))
    """,
    ),
    Call(
        "Future.client, executor",
        """
    f = client.submit(inc, 1)
    f.client is client and f.executor is client
    """,
    ),
    Call(
        "Future.bind_client(client)",
        """
    f = dd.Future(client.submit(inc, 402, key="bound").key)
    f.bind_client(client)
    f.result() == 403
    """,
        "client.submit(inc, 1).bind_client(client)",
    ),
    Call(
        "await future",
        """
    async def main():
        async with connected(asynchronous=True) as other:
            return await other.submit(inc, 1)
    run(main()) == 2
    """,
    ),
    Call(
        "Future: hash and equality are its identity",
        """
    f, g = client.submit(inc, 5), client.submit(inc, 6)
    len({f, g}) == 2 and f != g
    """,
    ),
    Call(
        "pickle.dumps(future)",
        """
    again = pickle.loads(pickle.dumps(client.submit(inc, 403)))
    again.bind_client(client)
    again.result() == 404
    """,
        "pickle.loads(pickle.dumps(client.submit(inc, 403))).result() == 404",
        "needs no `bind_client`",
    ),
    Call(
        "FutureCancelledError(key, reason, msg)",
        """
    from distributed.client import FutureCancelledError
    f = held()
    f.cancel()
    error = error_of(f.result)
    isinstance(error, FutureCancelledError) and error.key == f.key
    """,
        """
    f = held()
    f.cancel()
    error = error_of(f.result)
    isinstance(error, weft.TaskCancelled) and error.key == f.key
    """,
        "`weft.TaskCancelled`",
    ),
    Call(
        "CancelledError",
        """
    f = held()
    f.cancel()
    isinstance(error_of(f.result), dd.CancelledError)
    """,
    ),
    Call(
        "FuturesCancelledError(groups) of wait",
        """
    f = held()
    f.cancel()
    isinstance(error_of(dd.wait, [f], timeout=10), dd.CancelledError)
    """,
        """
    f = held()
    f.cancel()
    dd.wait([f], timeout=10).done == {f} and isinstance(error_of(f.result), dd.CancelledError)
    """,
        "`wait` counts them as done; `result()` and `gather` raise",
    ),
    Call(
        "KilledWorker(task, last_worker, allowed_failures)",
        """
    with local(processes=True) as own, dd.Client(own, set_as_default=False) as c:
        error = c.submit(die).exception()
    isinstance(error, dd.KilledWorker)
    """,
    ),
    Call(
        "NoValidWorkerError, NoWorkerError",
        """
    from distributed.exceptions import WorkerStartTimeoutError
    from distributed.scheduler import NoValidWorkerError
    issubclass(NoValidWorkerError, Exception)
    """,
        "issubclass(weft.NoWorker, Exception)",
        "`weft.NoWorker`",
    ),
    Call(
        "WorkerStartTimeoutError",
        "isinstance(error_of(client.wait_for_workers, 50, timeout=0.1), TimeoutError)",
    ),
    Call(
        "ClosedClientError",
        """
    other = connected()
    other.close()
    from distributed.client import ClosedClientError
    isinstance(error_of(other.submit, inc, 1), ClosedClientError)
    """,
        """
    other = connected()
    other.close()
    isinstance(error_of(other.submit, inc, 1), weft.ClientClosed)
    """,
        "`weft.ClientClosed`",
    ),
    Call(
        "VersionMismatchWarning",
        """
    from distributed.versions import VersionMismatchWarning
    True
    """,
        "client.get_versions(check=True) is not None",
        "`client.get_versions(check=True)`",
    ),
    Call(
        "wait(futures)",
        """
    fs = client.map(inc, range(3))
    len(dd.wait(fs).done) == 3
    """,
    ),
    Call(
        "wait(timeout=)",
        """
    f = held()
    error = error_of(dd.wait, [f], timeout=0.1)
    isinstance(error, TimeoutError)
    """,
    ),
    Call(
        'wait(return_when="FIRST_COMPLETED")',
        """
    f, g = held(), client.submit(inc, 1)
    done, left = dd.wait([f, g], return_when="FIRST_COMPLETED")
    (done, left) == ({g}, {f})
    """,
    ),
    Call(
        "as_completed(futures)",
        "sorted(f.result() for f in dd.as_completed(client.map(inc, range(3)))) == [1, 2, 3]",
    ),
    Call(
        "as_completed(with_results=True)",
        """
    sorted(r for _, r in dd.as_completed(client.map(inc, range(2)), with_results=True)) == [1, 2]
    """,
    ),
    Call(
        "as_completed(raise_errors=False)",
        """
    failed = [client.submit(fail, pure=False)]
    [(f, r)] = dd.as_completed(failed, with_results=True, raise_errors=False)
    isinstance(r, tuple) and isinstance(r[1], ValueError)
    """,
        """
    failed = [client.submit(fail, pure=False)]
    [(f, r)] = dd.as_completed(failed, with_results=True, raise_errors=False)
    isinstance(r, ValueError)
    """,
        "the error itself, not a triple with its class and traceback",
    ),
    Call(
        "as_completed(timeout=)",
        """
    f = held()
    error = error_of(list, dd.as_completed([f], timeout=0.1))
    isinstance(error, TimeoutError)
    """,
    ),
    Call(
        "as_completed(loop=)",
        "len(list(dd.as_completed(client.map(inc, range(2)), loop=client.loop))) == 2",
    ),
    Call(
        "as_completed.add, update, count, is_empty",
        """
    ac = dd.as_completed()
    empty = ac.is_empty()
    ac.add(client.submit(inc, 1))
    ac.update(client.map(inc, range(2, 4)))
    (empty, ac.count(), len(list(ac))) == (True, 3, 3)
    """,
    ),
    Call(
        "as_completed.has_ready, next_batch, batches, clear",
        """
    ac = dd.as_completed(client.map(inc, range(3)))
    until(ac.has_ready)
    n = len(ac.next_batch(block=True)) + sum(len(batch) for batch in ac.batches())
    ac.clear()
    n == 3
    """,
    ),
    Call(
        "async for future in as_completed(...)",
        """
    async def main():
        async with connected(asynchronous=True) as other:
            return [await f async for f in dd.as_completed(other.map(inc, range(2)))]
    sorted(run(main())) == [1, 2]
    """,
    ),
    Call(
        "as_completed(futures of actors)",
        """
    counter = client.submit(Counter, actor=True, pure=False).result()
    [f.result() for f in dd.as_completed([counter.add(2)])] == [2]
    """,
    ),
    Call(
        "fire_and_forget(future)",
        """
    dd.fire_and_forget(client.submit(once, str(folder / "fired"), pure=False))
    until((folder / "fired").exists)
    """,
    ),
    Call(
        "futures_of(x)",
        "len(dd.futures_of(client.persist(da.ones(4, chunks=2)))) == 2",
    ),
    Call(
        "futures_of(x, client=)",
        "len(dd.futures_of([client.submit(inc, 1)], client=client)) == 1",
    ),
    Call(
        "default_client()",
        "dd.default_client() is client",
    ),
    Call(
        "performance_report(filename)",
        """
    with dd.performance_report(str(folder / "report.html")):
        client.submit(inc, 500).result()
    (folder / "report.html").exists()
    """,
    ),
    Call(
        "performance_report(stacklevel=, mode=, storage_options=)",
        """
    options = dict(stacklevel=1, mode="inline", storage_options={})
    with dd.performance_report(str(folder / "r2.html"), **options):
        client.submit(inc, 501).result()
    (folder / "r2.html").exists()
    """,
        """
    with dd.performance_report(str(folder / "r2.html"), stacklevel=1):
        client.submit(inc, 501).result()
    (folder / "r2.html").exists()
    """,
        "the report is one file: no `mode=`",
    ),
    Call(
        "get_task_metadata()",
        """
    with dd.get_task_metadata() as tasks:
        client.submit(inc, 502).result()
    len(tasks.state) == 1
    """,
    ),
    Call(
        "get_task_stream() around a part",
        """
    with dd.get_task_stream() as stream:
        client.submit(inc, 503).result()
    len(stream.data) == 1
    """,
    ),
    Call(
        "get_task_stream(client=, plot=, filename=)",
        """
    with dd.get_task_stream(client, plot="save", filename=str(folder / "s.html")) as stream:
        client.submit(inc, 504).result()
    (folder / "s.html").exists()
    """,
    ),
    Call(
        "progress(futures)",
        """
    with contextlib.redirect_stdout(io.StringIO()):
        dd.progress(client.map(inc, range(3)), notebook=False)
    True
    """,
    ),
    Call(
        "progress(multi=, complete=, group_by=)",
        """
    with contextlib.redirect_stdout(io.StringIO()):
        dd.progress(client.map(inc, range(3)), notebook=False, multi=False, complete=False,
            group_by="prefix")
    True
    """,
    ),
    Call(
        "progress(group_by=function)",
        """
    with contextlib.redirect_stdout(io.StringIO()):
        dd.progress(client.map(inc, range(3)), notebook=False, group_by=lambda key: "all")
    True
    """,
    ),
    Call(
        'progress(group_by="spans")',
        """
    with dd.span("progress"), contextlib.redirect_stdout(io.StringIO()):
        dd.progress(client.map(inc, range(3)), notebook=False, group_by="spans")
    True
    """,
    ),
]
