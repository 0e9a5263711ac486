"""Workloads with a fault in their middle: weft alone, on a cluster of daemons of its own."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Callable
from typing import Any

from ..framework.work import Sample, check
from ..tasks import (
    inc,
    number_of,
    recorded,
    recorded_block,
    recorded_inc,
    second_of,
    wait_for_file,
)
from .systems import System

#: Size of each held result; of so many tasks one has such a result.
BLOCK_NBYTES = 1 << 20
TASKS_PER_BLOCK = 100
#: Time between the end of a scheduler and the start of the next one.
GAP_S = 1.0
LIMIT_S = 120.0
#: Processor time of each task of the map whose connections are reset.
TASK_S = 0.0001


def run_recovery(system: System, n: int) -> Sample:
    """A scheduler is killed with n tasks, of which every hundredth is done and has a result of
    1 MiB on one of 8 workers; the next one starts after a second.

    Returns:
        Seconds from when it listens until all workers and the client are back, and a new call was
        run; beside it how many of the held results were made again, or are lost.
    """
    import weft

    from .daemons import Cluster

    n_kept = max(2, n // TASKS_PER_BLOCK)
    with Cluster(8 if n >= 1_000 else 2) as cluster:
        log, gate_file = str(cluster.folder / "log"), str(cluster.folder / "gate")
        open(log, "xb").close()
        cluster.start_workers(cluster.port)
        with weft.Client(connection_file=cluster.connection_file, timeout=LIMIT_S) as client:
            client.wait_for_workers(cluster.n_workers, LIMIT_S)
            held = client.map(
                recorded_block, [log] * n_kept, range(n_kept), [BLOCK_NBYTES] * n_kept, pure=False
            )
            weft.wait(held, LIMIT_S)
            gate = client.submit(wait_for_file, gate_file, pure=False)
            rest = client.map(second_of, itertools.repeat(gate), range(n - n_kept), pure=False)
            client.scheduler_info()  # the scheduler has all of them
            cluster.kill_scheduler()
            time.sleep(GAP_S)
            listened = cluster.start_scheduler()
            _wait_until(lambda: len(client.scheduler_info()["workers"]) == cluster.n_workers)
            check(client.submit(inc, n, pure=False).result(LIMIT_S), n + 1)
            seconds = time.perf_counter() - listened
            open(gate_file, "xb").close()
            checksum = check(
                sum(client.gather(rest, timeout=LIMIT_S)), (n - n_kept) * (n - n_kept - 1) // 2
            )
            readers = client.map(number_of, held, pure=False)
            numbers = set(client.gather(readers, errors="skip", timeout=LIMIT_S))
            counts = recorded(log, n_kept)
            n_lost = sum(number not in numbers for number in range(n_kept))
            n_again = sum(count > 1 for count in counts)
    return Sample(seconds, checksum, {"n_again_or_lost": n_again + n_lost, "n_lost": n_lost})


def run_resets(system: System, n: int) -> Sample:
    """All connections to the scheduler are reset in the middle of a map of n: how many finished
    tasks were run again.
    """
    import weft

    from ..proxy import Proxy
    from .daemons import Cluster

    with Cluster(2) as cluster, contextlib.closing(Proxy(cluster.port)) as proxy:
        log = str(cluster.folder / "log")
        open(log, "xb").close()
        cluster.start_workers(proxy.port_for("workers"))
        address = f"tcp://127.0.0.1:{proxy.port_for('client')}"
        with weft.Client(
            address, connection_file=cluster.connection_file, timeout=LIMIT_S
        ) as client:
            client.wait_for_workers(cluster.n_workers, LIMIT_S)
            start = time.perf_counter()
            futures = client.map(recorded_inc, [log] * n, [TASK_S] * n, range(n), pure=False)
            _wait_until(lambda: os.stat(log).st_size >= 8 * n // 2)
            n_connections = proxy.reset("workers") + proxy.reset("client")
            results = client.gather(futures, timeout=LIMIT_S)
            elapsed = time.perf_counter() - start
            checksum = check(sum(results), n * (n + 1) // 2)
            n_again = sum(count > 1 for count in recorded(log, n))
    return Sample(n_again, checksum, {"n_connections": n_connections, "elapsed_s": elapsed})


def _wait_until(is_done: Callable[[], Any]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not is_done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not reached within {LIMIT_S:.0f} s")
        time.sleep(0.002)
