from __future__ import annotations

import pytest

from weft.protocol.host import machine


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """Control groups in a folder; `groups("0::/a", {"a/cpu.max": "max 1"})` sets them."""
    monkeypatch.setattr(machine, "_GROUPS", tmp_path / "groups")
    monkeypatch.setattr(machine, "_PROCESSES", tmp_path)
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


@pytest.mark.parametrize(
    ("own", "name", "text"),
    [
        ("0::/job/step", "job/step/memory.events", "low 0\nmax 9\noom 5\noom_kill 3"),
        ("4:memory:/job\n0::/", "memory/job/memory.oom_control", "under_oom 0\noom_kill 3"),
        # In a container whose groups are shown by their paths on the host.
        ("4:memory:/docker/abc\n0::/", "memory/memory.oom_control", "oom_kill 3"),
    ],
)
def test_kills_by_the_kernel_are_read_in_the_group_of_a_process(own, name, text, groups, tmp_path):
    groups("0::/other", {name: text, "other/memory.events": "oom_kill 7"})
    (tmp_path / "123").mkdir()
    (tmp_path / "123" / "cgroup").write_text(own + "\n")
    counter = machine.oom_counter(123)
    assert counter == tmp_path / "groups" / name
    assert machine.n_oom_kills(counter) == 3


def test_the_nearest_group_that_counts_kills_is_taken(groups, tmp_path):
    groups("0::/a", {"a/memory.events": "oom_kill 1", "a/b/memory.events": "oom_kill 2"})
    (tmp_path / "123").mkdir()
    (tmp_path / "123" / "cgroup").write_text("0::/a/b\n")
    assert machine.oom_counter(123) == tmp_path / "groups" / "a" / "b" / "memory.events"


def test_without_a_count_of_kills_none_is_known(groups, tmp_path):
    groups("0::/", {"memory.events": "low 0", "memory/memory.oom_control": "oom_kill many"})
    (tmp_path / "123").mkdir()
    (tmp_path / "123" / "cgroup").write_text("4:memory:/\n0::/\n")
    assert machine.oom_counter(123) is None
    assert machine.oom_counter(124) is None, "such a process is gone"
    assert machine.n_oom_kills(tmp_path / "gone") is None
