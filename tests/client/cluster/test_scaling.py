"""`Client.scale`: its arguments and rights, and how many workers each supervisor should have.

tests/deploy/cli has it with real supervisors, in test_words.py and test_scaling.py.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

import weft
from weft.client.cluster.scaling import demand_places, spread
from weft.protocol.errors import NotPermitted, NotSupported, QuestionFailed
from weft.protocol.wire.levels import Level


@pytest.mark.parametrize(
    ("places", "n", "wanted"),
    [
        ({}, 5, {}),
        ({"a": 2}, 5, {"a": 5}),
        ({"a": 2, "b": 0}, 4, {"a": 2, "b": 2}),
        ({"a": 2, "b": 1}, 6, {"a": 3, "b": 3}),
        ({"a": 4, "b": 1}, 3, {"a": 2, "b": 1}),
        ({"a": 4, "b": 1}, 0, {"a": 0, "b": 0}),
        ({"a": 1}, -2, {"a": 0}),
    ],
)
def test_the_fewest_get_more_and_the_most_give_up(places, n, wanted):
    assert spread(places, n) == wanted


def test_more_workers_than_all_supervisors_may_start_are_an_error_with_the_number_that_was_asked():
    demand_places(2003, 3, 2)
    demand_places(99_999, 3, 0)  # nobody could start any: that is another error
    with pytest.raises(QuestionFailed) as caught:
        demand_places(99_999, 3, 2)
    assert caught.value.text == (
        "99999 workers are more than the limit of 2003: each `weft worker` starts at most 1000, "
        "and 2 are connected; start it on more machines"
    )


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"n": -1}, ValueError, "n= is a number of workers"),
        ({"n": True}, ValueError, "n= is a number of workers"),
        ({"n": "2"}, ValueError, "not '2'"),
        ({"n": 1, "jobs": 2}, TypeError, "weft counts no jobs"),
        ({"n": 1, "wat": True}, TypeError, "no option 'wat'"),
    ],
)
def test_wrong_arguments_are_errors(arguments, error, text):
    with (
        weft.Client(processes=False, n_workers=1) as client,
        pytest.raises(error, match=text),
    ):
        client.scale(**arguments)


@pytest.mark.parametrize("level", [Level.CLIENT, Level.ADMIN])
def test_a_token_of_an_admin_is_needed_and_a_supervisor(level):
    with weft.LocalCluster(processes=False, n_workers=1) as cluster:

        class Elsewhere:
            """The cluster as one of its users sees it."""

            scheduler_address = cluster.scheduler_address
            security = cluster.security.lowered(level)
            loop_thread = cluster.loop_thread

        with weft.Client(Elsewhere()) as client:
            if level is Level.ADMIN:
                with pytest.raises(QuestionFailed, match="no supervisor is connected"):
                    client.scale(2)
                assert len(client.scale(0, wait=True, timeout=30)) == 1
                return
            for n in 0, 2:
                with pytest.raises(NotPermitted, match="'weft token --role admin") as caught:
                    client.scale(n)
                assert caught.value.what == "scale()"
            assert len(client.nthreads()) == 1


def test_a_wait_ends_with_the_numbers():
    with weft.LocalCluster(processes=False, n_workers=1) as cluster:

        class Unscaled:
            """A cluster whose workers do not come."""

            scheduler_address = cluster.scheduler_address
            security = cluster.security
            loop_thread = cluster.loop_thread

            async def _scale_whole(self, client, n, losses="keep"):
                return {}

            def _rounded(self, n):
                return n

        with (
            weft.Client(Unscaled()) as client,
            pytest.raises(
                TimeoutError,
                match=r"not 2 workers after 0\.1 s: 1 running, 0 paused, 0 blocked, 0 leaving",
            ),
        ):
            client.scale(2, wait=True, timeout="100ms")


def test_a_cluster_that_others_start_is_scaled_by_its_own_object():
    with weft.LocalCluster(processes=False, n_workers=1) as cluster:

        class Elsewhere(weft.deploy.cluster.Cluster):
            """A cluster whose workers something else starts."""

            scheduler_address = cluster.scheduler_address
            security = cluster.security
            loop_thread = cluster.loop_thread
            failure = None
            n_workers = 1

            async def _scale_to(self, client, n, losses="keep"):
                raise AssertionError

            def _end_adaptation(self):
                raise AssertionError("it goes on")

            async def _open_async(self):
                return self

            async def _close_async(self):
                pass

            def close(self):
                pass

        with (
            weft.Client(Elsewhere()) as client,
            pytest.raises(NotSupported, match=r"use cluster\.scale"),
        ):
            client.scale(2)


#: Of clusters in this process.
OPTIONS = {"processes": False, "threads_per_worker": 1}


def n_held(client: weft.Client) -> list[int]:
    """Return of each worker that leaves how many results hold it for want of room."""
    workers = client.scheduler_info()["workers"].values()
    return [w["leaving"]["n_stuck"] for w in workers if w["is_leaving"]]


def test_a_needed_result_keeps_the_last_worker_and_a_wait_ends_with_its_release(wait_until):
    with weft.Client(n_workers=2, **OPTIONS) as client, ThreadPoolExecutor(1) as other_thread:
        future = client.submit(bytes, 200_000, key="needed")
        weft.wait(future)
        kept, gone = sorted(client.scale(0).values(), key=lambda end: end["end"])
        assert (kept["end"], gone["end"]) == ("kept", "leaving")
        assert "'needed' for one, and no other worker stays" in kept["reason"]
        wait_until(lambda: len(client.nthreads()) == 1 and not n_held(client), 30, "one to be gone")
        waiting = other_thread.submit(client.scale, 0, wait=True, timeout=60)
        wait_until(lambda: n_held(client) == [1], 30, "the worker held by its result")
        assert future.done()
        assert not waiting.done()
        del future
        (left,) = waiting.result(60).values()
        assert (left["name"], left["end"]) == (kept["name"], "leaving")
        assert client.scheduler_info()["workers"] == {}


def test_a_worker_that_waits_for_room_goes_when_its_results_may_be_dropped(wait_until):
    with weft.Client(n_workers=1, **OPTIONS) as client:
        future = client.submit(bytes, 200_000)
        weft.wait(future)
        with pytest.raises(TimeoutError, match="1 leaving"):
            client.scale(0, wait=True, timeout="10ms")
        wait_until(lambda: n_held(client) == [1], 30, "the worker held by its result")
        assert client.scale(0) == {}
        (end,) = client.scale(0, drop=True, wait=True, timeout=60).values()
        assert end["end"] == "leaving"
        assert client.scheduler_info()["workers"] == {}
        assert not future.done()


async def test_an_asynchronous_client_awaits_it():
    options = {"processes": False, "n_workers": 1, "threads_per_worker": 1}
    async with weft.Client(asynchronous=True, **options) as client:
        assert await client.scale(2, wait=True, timeout=30) == {}
        assert client.cluster.n_workers == 2
        assert len(await client.scale(0)) == 2
