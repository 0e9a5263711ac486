"""What a task of a gang reads of the others."""

from __future__ import annotations

import pytest

from weft.protocol.errors import NotInTask
from weft.worker.gang import FIRST_PORT, N_PORTS, Gang, get_gang

ADDRESSES = ("tls://10.0.0.1:4000", "tcp://[fe80::1]:5000", "tls://10.0.0.1:4001")


def test_hosts_are_those_of_the_workers():
    assert Gang("run", 0, 3, ADDRESSES).hosts == ("10.0.0.1", "fe80::1", "10.0.0.1")
    local = ("inproc://w-1", "unix:///tmp/worker.sock")
    assert Gang("run", 1, 2, local).hosts == ("127.0.0.1", "127.0.0.1")


def test_local_ranks_count_on_each_host():
    assert [Gang("run", rank, 3, ADDRESSES).local_rank for rank in range(3)] == [0, 0, 1]


def test_all_have_the_same_environment_but_their_ranks():
    first, last = (Gang("run", rank, 3, ADDRESSES).environment for rank in (0, 2))
    assert first == {
        "RANK": "0",
        "WORLD_SIZE": "3",
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": first["MASTER_PORT"],
    }
    assert last == {**first, "RANK": "2", "LOCAL_RANK": "1"}


def test_ports_differ_between_runs_and_stay_below_those_that_systems_give_out():
    ports = {Gang(f"run-{i}", 0, 1, ADDRESSES[:1]).port for i in range(200)}
    assert len(ports) > 180
    assert min(ports) >= FIRST_PORT
    assert max(ports) < FIRST_PORT + N_PORTS < 32_768


def test_no_thread_outside_of_tasks_has_a_gang():
    with pytest.raises(NotInTask):
        get_gang()
