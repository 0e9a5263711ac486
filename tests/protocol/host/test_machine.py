from __future__ import annotations

import pytest

from weft.protocol.host import machine


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """Control groups in a folder; `groups("0::/a", {"a/cpu.max": "max 1"})` sets them."""
    monkeypatch.setattr(machine, "_GROUPS", tmp_path / "groups")
    monkeypatch.setattr(machine, "_OWN_GROUPS", tmp_path / "own")
    # Many, so that no test depends on the machine that it runs on.
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda pid: set(range(64)), raising=False)

    def set_groups(own, files):
        (tmp_path / "own").write_text(own + "\n")
        for name, text in files.items():
            path = tmp_path / "groups" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n")
        machine._cpu_quota.cache_clear()

    machine._cpu_quota.cache_clear()
    yield set_groups
    machine._cpu_quota.cache_clear()


def test_this_machine_has_a_core():
    assert machine.n_cores() >= 1


def test_without_control_groups_affinity_counts(groups):
    assert machine.n_cores() == 64
    assert machine.memory_limit() is None


@pytest.mark.parametrize(
    ("quota", "expected"),
    [("200000 100000", 2), ("50000 100000", 1), ("250000 100000", 3), ("max 100000", 64)],
)
def test_a_quota_counts_rounded_up(quota, expected, groups):
    groups("0::/", {"cpu.max": quota})
    assert machine.n_cores() == expected


def test_the_least_of_the_groups_around_us_counts(groups):
    groups(
        "0::/job/step",
        {
            "job/cpu.max": "300000 100000",
            "job/step/cpu.max": "800000 100000",
            "job/memory.max": "1000",
            "job/step/memory.max": "max",
            "other/cpu.max": "100000 100000",
        },
    )
    assert machine.n_cores() == 3
    assert machine.memory_limit() == 1000


def test_the_older_interface_is_read_too(groups):
    groups(
        "4:memory:/docker/abc\n2:cpu,cpuacct:/docker/abc\n0::/",
        {
            # As in a container without a namespace: the path does not exist, the root is our group.
            "cpu/cpu.cfs_quota_us": "400000",
            "cpu/cpu.cfs_period_us": "100000",
            "memory/memory.limit_in_bytes": "2000",
        },
    )
    assert machine.n_cores() == 4
    assert machine.memory_limit() == 2000


def test_no_quota_of_the_older_interface_is_no_limit(groups):
    groups("2:cpu:/", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"})
    assert machine.n_cores() == 64


def test_a_path_outside_our_namespace_is_not_followed(groups):
    groups("0::/../../x", {"cpu.max": "500000 100000", "x/cpu.max": "100000 100000"})
    assert machine.n_cores() == 5
