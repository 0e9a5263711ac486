"""A `LocalCluster` that gets more and fewer workers while it runs, by hand and by itself."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

import weft
from weft.protocol.errors import ConfigError, NotPermitted
from weft.protocol.wire.levels import Level
from weft.scheduler.core.conditions.no_worker_limit import no_worker_limit_of

pytestmark = pytest.mark.slow

Wait = Callable[..., None]


def sleep_until(path: str, i: int) -> int:
    Path(path, f"started-{i}").touch()
    while not Path(path, "go").exists():
        time.sleep(0.01)  # workload
    return i


def n_registered(client: weft.Client) -> int:
    return len(client.nthreads())


@pytest.mark.parametrize("processes", [True, False])
def test_a_cluster_grows_shrinks_and_goes_to_zero_and_back(processes, wait_until: Wait):
    with (
        weft.LocalCluster(n_workers=1, threads_per_worker=1, processes=processes) as cluster,
        weft.Client(cluster) as client,
    ):
        assert client.cluster is cluster
        cluster.scale(3)
        cluster.wait_for_workers(timeout=60)
        assert n_registered(client) == 3
        assert cluster.n_workers == 3
        cluster.scale(3)
        assert client.gather(client.map(str, range(10))) == [str(i) for i in range(10)]
        cluster.scale(1)
        wait_until(lambda: n_registered(client) == 1, 60)
        assert client.submit(abs, -1).result(timeout=60) == 1
        cluster.scale(0)
        wait_until(lambda: n_registered(client) == 0, 60)
        future = client.submit(abs, -2)
        cluster.scale(2)
        assert future.result(timeout=60) == 2
        names = {worker["name"] for worker in cluster.workers.values()}
        assert names <= {f"{cluster.name}-{i}" for i in range(3, 6)}, "no name comes twice"


def test_a_running_task_is_finished_when_its_worker_is_too_many(tmp_path: Path, wait_until: Wait):
    with (
        weft.LocalCluster(n_workers=2, threads_per_worker=1) as cluster,
        weft.Client(cluster) as client,
    ):
        client.wait_for_workers(2)
        futures = [client.submit(sleep_until, str(tmp_path), i) for i in range(2)]
        wait_until(lambda: len(list(tmp_path.iterdir())) == 2, 60)
        cluster.scale(0)
        (tmp_path / "go").touch()
        assert client.gather(futures) == [0, 1]
        wait_until(lambda: n_registered(client) == 0, 60)


@pytest.mark.parametrize("processes", [True, False])
def test_a_cluster_that_goes_to_zero_keeps_a_worker_with_what_is_needed(
    processes, wait_until: Wait, caplog
):
    caplog.set_level(logging.INFO, "weft.cluster")
    with (
        weft.LocalCluster(n_workers=2, threads_per_worker=1, processes=processes) as cluster,
        weft.Client(cluster) as client,
    ):
        client.wait_for_workers(2)
        futures = client.map(bytes, range(200_000, 200_004))
        weft.wait(futures)
        cluster.scale(0)
        wait_until(lambda: n_registered(client) == 1, 60)
        assert cluster.n_workers == 1
        (line,) = caplog.messages
        assert f"{cluster.name} keeps 1 worker more than wanted: " in line
        assert "no other worker stays" in line
        assert [len(x) for x in client.gather(futures)] == [*range(200_000, 200_004)]
        assert [a.end for f in futures for a in f.attempts()] == ["finished"] * 4
        ends = client.scale(0)
        assert [end["end"] for end in ends.values()] in (["kept"], ["leaving"], ["left"])
        cluster.scale(0, drop=True)
        wait_until(lambda: n_registered(client) == 0, 60)
        assert cluster.n_workers == 0


def test_an_adaptation_that_keeps_a_worker_says_so_once(wait_until: Wait, caplog):
    caplog.set_level(logging.INFO, "weft.cluster")
    with (
        weft.LocalCluster(n_workers=2, threads_per_worker=1, processes=False) as cluster,
        weft.Client(cluster) as client,
    ):
        (data,) = client.scatter([b"x" * 1000])
        adaptation = cluster.adapt(0, 2, wait_down="10ms", interval="50ms")
        wait_until(lambda: adaptation.log, 60)
        wait_until(lambda: n_registered(client) == 1, 60)
        assert [n for _, n in adaptation.log] == [1]
        assert cluster.n_workers == 1
        del data
        wait_until(lambda: n_registered(client) == 0, 60)
        assert [n for _, n in adaptation.log] == [1, 0]
        lines = [line for line in caplog.messages if "adapts from" in line]
        assert [line.split(" adapts ")[1] for line in lines] == [
            "from 2 to 1 workers",
            "from 1 to 0 workers",
        ]


def test_workers_that_have_not_joined_are_given_up(wait_until: Wait):
    with (
        weft.LocalCluster(n_workers=1, threads_per_worker=1) as cluster,
        weft.Client(cluster) as client,
    ):
        cluster.scale(6)
        cluster.scale(1)
        cluster.wait_for_workers(1, timeout=60)
        wait_until(lambda: n_registered(client) == 1, 60)
        assert client.submit(abs, -1).result(timeout=60) == 1


def test_the_size_may_be_given_by_threads_and_memory():
    options = {"n_workers": 1, "threads_per_worker": 2, "memory_limit": "1GB", "processes": False}
    with weft.LocalCluster(**options) as cluster:
        cluster.scale(cores=3)
        assert cluster.n_workers == 2
        cluster.scale(memory="2.5GB")
        assert cluster.n_workers == 3


@pytest.mark.parametrize(
    "options", [{}, {"n": 1, "cores": 1}, {"n": -1}, {"n": 1.5}, {"n": True}, {"memory": "much"}]
)
def test_a_wrong_size_is_an_error(options):
    with (
        weft.LocalCluster(n_workers=1, processes=False, memory_limit="1GB") as cluster,
        pytest.raises(ConfigError),
    ):
        cluster.scale(**options)


@pytest.mark.parametrize("processes", [True, False])
def test_a_cluster_may_begin_without_workers(processes):
    with (
        weft.LocalCluster(n_workers=0, processes=processes) as cluster,
        weft.Client(cluster) as client,
    ):
        assert (cluster.n_workers, n_registered(client)) == (0, 0)
        future = client.submit(abs, -1)
        cluster.scale(1)
        assert future.result(timeout=60) == 1
        (worker,) = client.scheduler_info()["workers"].values()
        assert worker["name"] == f"{cluster.name}-0"
        assert worker["nthreads"] == cluster.threads_per_worker


@pytest.mark.parametrize("processes", [True, False])
def test_a_client_scales_its_cluster(processes):
    with (
        weft.LocalCluster(n_workers=1, threads_per_worker=1, processes=processes) as cluster,
        weft.Client(cluster) as client,
    ):
        adaptation = cluster.adapt(1, 2)
        assert client.scale(3, wait=True, timeout=60) == {}
        assert not adaptation.is_running
        assert (cluster.n_workers, n_registered(client)) == (3, 3)
        assert len(client.scale(1, wait=True, timeout=60)) == 2
        assert (cluster.n_workers, n_registered(client)) == (1, 1)


def test_a_refused_call_changes_neither_the_adaptation_nor_the_number(monkeypatch):
    async def refuse(n: int) -> None:
        raise OSError("no more processes")

    with (
        weft.LocalCluster(n_workers=1, threads_per_worker=1, processes=False) as cluster,
        weft.Client(cluster) as client,
    ):
        adaptation = cluster.adapt(1, 1)
        lowered = cluster.security.lowered(Level.CLIENT)
        with monkeypatch.context() as patch:
            patch.setattr(type(client._running().link), "security", lowered)
            with pytest.raises(NotPermitted):
                client.scale(3)
        assert adaptation.is_running
        monkeypatch.setattr(cluster._embedded, "grow", refuse)
        with pytest.raises(OSError, match="no more processes"):
            client.scale(3)
        assert cluster.n_workers == 1


@pytest.mark.parametrize("processes", [True, False])
def test_a_cluster_knows_of_workers_that_were_retired(processes, tmp_path: Path, wait_until: Wait):
    with (
        weft.LocalCluster(n_workers=3, threads_per_worker=1, processes=processes) as cluster,
        weft.Client(cluster) as client,
    ):
        client.wait_for_workers(3)
        client.retire_workers(n=1)
        assert cluster.n_workers == 2
        cluster.wait_for_workers(timeout=60)
        futures = [client.submit(sleep_until, str(tmp_path), i) for i in range(2)]
        wait_until(lambda: len(list(tmp_path.iterdir())) == 2, 60)
        with pytest.raises(TimeoutError, match="their tasks still run"):
            client.retire_workers(n=1, timeout=0.05)
        assert cluster.n_workers == 1
        (tmp_path / "go").touch()
        assert client.gather(futures) == [0, 1]
        elsewhere = SimpleNamespace(
            scheduler_address=cluster.scheduler_address,
            security=cluster.security,
            loop_thread=cluster.loop_thread,
        )
        with weft.Client(elsewhere) as other:
            other.retire_workers(keep=0)
            cluster.wait_for_workers(timeout=60)
            assert cluster.n_workers == 0
            cluster.scale(1)
            assert client.submit(abs, -3).result(timeout=60) == 3


@pytest.mark.parametrize("processes", [True, False])
def test_a_cluster_adapts_to_the_work(processes, tmp_path: Path, wait_until: Wait):
    with (
        weft.LocalCluster(n_workers=1, threads_per_worker=1, processes=processes) as cluster,
        weft.Client(cluster) as client,
    ):
        adaptation = cluster.adapt(
            0, 3, interval="50ms", wait_up="0s", wait_down="500ms", target_duration="100ms"
        )
        wait_until(lambda: n_registered(client) == 0, 60)
        futures = [client.submit(sleep_until, str(tmp_path), i) for i in range(5)]
        wait_until(lambda: n_registered(client) == 3, 60)
        (tmp_path / "go").touch()
        assert client.gather(futures) == list(range(5))
        wait_until(lambda: n_registered(client) == 0, 60)
        sizes = [n for _, n in adaptation.log]
        assert max(sizes) == 3
        assert sizes[-1] == 0
        assert adaptation.is_running
        cluster.scale(1)
        assert not adaptation.is_running
        cluster.wait_for_workers(1, timeout=60)


def test_an_adaptation_logs_an_unexpected_error_when_it_happens_and_goes_on(
    tmp_path: Path, wait_until: Wait, monkeypatch, caplog
):
    with (
        weft.LocalCluster(n_workers=1, threads_per_worker=1, processes=False) as cluster,
        weft.Client(cluster) as client,
    ):
        grow = cluster._embedded.grow

        async def refuse_once(n: int) -> object:
            monkeypatch.setattr(cluster._embedded, "grow", grow)
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(cluster._embedded, "grow", refuse_once)
        cluster.adapt(1, 2, interval="50ms", wait_up="0s", target_duration="100ms")
        futures = [client.submit(sleep_until, str(tmp_path), i) for i in range(5)]
        wait_until(lambda: n_registered(client) == 2, 60)
        (tmp_path / "go").touch()
        assert client.gather(futures) == list(range(5))
    (record,) = [r for r in caplog.records if "could not be scaled" in r.getMessage()]
    assert "can't start new thread" in str(record.exc_info)


def test_the_scheduler_knows_while_a_cluster_adapts(wait_until: Wait):
    with weft.LocalCluster(processes=False, n_workers=1) as cluster:
        state = cluster._embedded._scheduler.state
        assert no_worker_limit_of(state).adapts_until == 0.0
        cluster.adapt(1, 2, interval="50ms")
        wait_until(lambda: no_worker_limit_of(state).adapts_until > state.now + 50, 30, "adapting")


@pytest.mark.parametrize("processes", [True, False])
def test_the_time_to_wait_for_a_worker_may_be_a_setting(monkeypatch, processes):
    monkeypatch.setenv("WEFT_SCHEDULER_NO_WORKER_TIMEOUT", "1s")
    with (
        weft.LocalCluster(processes=processes, n_workers=1) as cluster,
        weft.Client(cluster, set_as_default=False) as client,
    ):
        future = client.submit(abs, -1, resources={"GPU": 1})
        with pytest.raises(weft.NoWorker, match=r"for 1 s: no worker offers GPU: 1"):
            future.result(timeout=60)
        assert client.submit(abs, -2).result(timeout=60) == 2


def test_an_adaptation_ends_with_its_cluster():
    cluster = weft.LocalCluster(n_workers=1, processes=False)
    adaptation = cluster.adapt(1, 2)
    assert "1 to 2 workers" in repr(adaptation)
    cluster.close()
    assert not adaptation.is_running


def test_wrong_limits_and_options_of_dask_are_errors():
    with weft.LocalCluster(n_workers=1, processes=False) as cluster:
        with pytest.raises(ConfigError, match="maximum"):
            cluster.adapt(3, 2)
        with pytest.raises(TypeError, match="wait_down"):
            cluster.adapt(1, 2, wait_count=3)
        with pytest.raises(TypeError, match="see help"):
            cluster.adapt(1, 2, quickly=True)
        with pytest.raises(TypeError, match="did you mean minimum="):
            cluster.adapt(min=1)
        with pytest.raises(ConfigError, match="maximum: 1 is fewer than minimum=3"):
            cluster.adapt(3, 1)
        with pytest.raises(ConfigError, match="would never do anything"):
            cluster.adapt(0, 0)
        with pytest.raises(TypeError, match="n= is the number of workers"):
            cluster.scale(jobs=2)
        with pytest.raises(TypeError, match="did you mean cores="):
            cluster.scale(core=2)
        with pytest.raises(ConfigError, match="2 of n=, cores= and memory="):
            cluster.scale(2, cores=2)


def test_an_asynchronous_cluster_is_scaled_and_adapts(tmp_path: Path):
    async def main() -> None:
        options = {"n_workers": 1, "threads_per_worker": 1, "processes": False}
        async with (
            weft.LocalCluster(asynchronous=True, **options) as cluster,
            weft.Client(cluster, asynchronous=True) as client,
        ):
            await cluster.scale(2)
            await cluster.wait_for_workers(timeout=60)
            assert len(await client.nthreads()) == 2
            logs = await cluster.get_logs()
            assert "Scheduler" in logs
            adaptation = cluster.adapt(1, 2, interval="50ms", wait_down="100ms")
            while len(await client.nthreads()) != 1:  # noqa: ASYNC110
                await asyncio.sleep(0.05)  # workload
            never_awaited = client.scale(2)
            never_awaited.close()
            assert adaptation.is_running
            assert await client.scale(2, wait=True, timeout=60) == {}
            assert not adaptation.is_running

    asyncio.run(main())


def test_the_logs_are_those_of_the_scheduler_and_the_workers():
    with weft.LocalCluster(n_workers=1, threads_per_worker=1, silence_logs=False) as cluster:
        cluster.wait_for_workers(timeout=60)
        logs = cluster.get_logs()
        (address,) = cluster.workers
        assert set(logs) == {"Scheduler", address}
        assert "joined" in logs["Scheduler"]
        assert set(cluster.get_logs(workers=False)) == {"Scheduler"}
