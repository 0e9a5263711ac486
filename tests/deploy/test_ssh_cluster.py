"""`SSHCluster` on a real sshd, whose machines are names of this one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import weft
from tests.deploy.ssh_kit import sshd
from tests.leaks import wait_until
from weft.deploy import SSHCluster
from weft.deploy.jobs.errors import JobsNotReady
from weft.protocol.errors import ConfigError

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with sshd(tmp_path_factory.mktemp("sshd"), "a", "b") as path:
        yield path


def ssh_cluster(config: Path, folder: Path, *hosts: str, **options: object) -> SSHCluster:
    given = {"grace": "5s", "poll_interval": "0.2s", "shared_temp_directory": folder}
    return SSHCluster(hosts, connect_options=["-F", str(config)], **{**given, **options})


def test_machines_join_leave_whole_and_come_back(config, tmp_path):
    with (
        ssh_cluster(config, tmp_path, "a", "b", cores=2) as cluster,
        weft.Client(cluster) as client,
    ):
        client.wait_for_workers(4, timeout=120)
        assert client.gather(client.map(abs, range(-3, 0))) == [3, 2, 1]
        cluster.scale(1)
        wait_until(lambda: len(client.scheduler_info()["workers"]) == 2, 60, "one that leaves")
        wait_until(lambda: "1 job: 1 runs>" in repr(cluster), 60, "the end of the job")
        cluster.scale(100)  # there are two machines
        client.wait_for_workers(4, timeout=120)
        assert cluster.n_workers == 4
        logs = cluster.get_logs()
        assert sum("registered at" in logs[job] for job in cluster.jobs()) == 3
    assert not [*tmp_path.iterdir()]


def test_a_machine_that_cannot_be_reached_says_why(config, tmp_path):
    with ssh_cluster(config, tmp_path, "a", "closed") as cluster:
        with pytest.raises(JobsNotReady, match=r"has failed: ssh cannot log in: .*refused"):
            cluster.wait_for_workers(2, timeout=120)
        cluster.wait_for_workers(1, timeout=120)


def test_machines_are_named(config, tmp_path):
    with pytest.raises(ConfigError, match="no machine is named"):
        ssh_cluster(config, tmp_path)
