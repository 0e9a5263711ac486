from __future__ import annotations

import pytest

from weft.deploy import settings
from weft.deploy.settings import WorkerCounts
from weft.protocol.errors import ConfigError
from weft.protocol.settings.kinds import (
    LimitsOfUsers,
    Resources,
    parse_bytes,
    parse_host_port,
)

ONE = WorkerCounts(1, 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("1", 1),
        ("1B", 1),
        ("4GB", 4 * 10**9),
        ("4 GB", 4 * 10**9),
        ("4g", 4 * 10**9),
        ("512MiB", 512 << 20),
        ("1.5KiB", 1536),
        ("2e9", 2 * 10**9),
        ("1TiB", 1 << 40),
    ],
)
def test_a_size_is_read_with_its_unit(text, expected):
    assert parse_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "lots", "4 GBs", "-1GB", "1e", "0x10", "nan", "4GB 2"])
def test_a_text_that_is_no_size_is_refused(text):
    with pytest.raises(ConfigError, match="is not a size"):
        parse_bytes(text, "--memory-limit")


def test_a_memory_limit_is_a_size_a_fraction_auto_or_none(monkeypatch):
    monkeypatch.setattr(settings, "total_memory", lambda: 8 * 10**9)
    monkeypatch.setattr(settings, "n_cores", lambda: 4)
    limit = settings.parse_memory_limit
    assert limit("4GB", ONE) == 4 * 10**9
    assert limit("0.5", ONE) == 4 * 10**9
    assert limit(0.25, ONE) == 2 * 10**9
    assert limit(1.0, ONE) == 8 * 10**9
    assert limit(10**9, ONE) == 10**9
    assert limit("auto", ONE) == 2 * 10**9
    assert limit("auto", WorkerCounts(4, 1)) == 2 * 10**9
    assert limit("auto", WorkerCounts(1, 4)) == 8 * 10**9
    assert limit("auto", WorkerCounts(16, 1)) == 5 * 10**8
    for nothing in (None, 0, "0", "none", "None", float("inf")):
        assert limit(nothing, ONE) == 0


@pytest.mark.parametrize("value", ["lots", "", -1, float("nan"), True, [], "-4GB"])
def test_a_value_that_is_no_memory_limit_is_refused(value):
    with pytest.raises(ConfigError, match="is not a memory limit; use 'auto'"):
        settings.parse_memory_limit(value, ONE)


def test_a_memory_limit_below_the_interpreter_s_own_need_is_refused():
    with pytest.raises(ConfigError, match="less than a Python process needs"):
        settings.parse_memory_limit("1MB", ONE)


def test_limits_of_users():
    kind = LimitsOfUsers()
    limits = {"ann": {"tasks": 1000, "memory": 4 * 10**9}, "bob": {"tasks": 0}}
    text = "ann: tasks=1000, memory=4GB; bob: tasks=none"
    table = {"ann": {"tasks": 1000, "memory": "4GB"}, "bob": {"tasks": "none"}}
    assert kind.read(text, "user-limits") == kind.read(table, "user-limits") == limits
    assert kind.read(None, "user-limits") == {}
    shown = kind.show(limits)
    assert shown == "ann: tasks=1000 memory=4000000000; bob: tasks=none"
    assert kind.read(shown, "user-limits") == limits


@pytest.mark.parametrize(
    "value", ["ann", "ann tasks=3", "ann: tasks", "ann: tasks=-1", "ann: files=3", ": tasks=3", 7,
              {"ann": 3}, {"ann": {"tasks": []}}, {"ann": {"memory": "many"}}]
)  # fmt: skip
def test_wrong_limits_of_users(value):
    with pytest.raises(ConfigError, match="user-limits"):
        LimitsOfUsers().read(value, "user-limits")


def test_resources_are_read_from_text_and_mappings():
    assert Resources().read("GPU=2 MEM=10e9", "resources") == {"GPU": 2.0, "MEM": 1e10}
    assert Resources().read("GPU=2,disk=0", "resources") == {"GPU": 2.0, "disk": 0.0}
    assert Resources().read({"GPU": 1}, "resources") == {"GPU": 1.0}
    assert Resources().read(None, "resources") == {}


@pytest.mark.parametrize(
    "value", ["GPU", "GPU=", "GPU=two", "=2", "GPU=-1", "GPU=inf", {"GPU": "x"}, {1: 2}, 3]
)
def test_values_that_are_no_resources_are_refused(value):
    with pytest.raises(ConfigError):
        Resources().read(value, "resources")


def test_by_default_each_core_has_a_worker_with_one_thread(monkeypatch):
    monkeypatch.setattr(settings, "n_cores", lambda: 8)
    decide = settings.decide_counts
    assert decide(None, None) == WorkerCounts(8, 1)
    assert decide(None, 4) == WorkerCounts(2, 4)
    assert decide(2, None) == WorkerCounts(2, 4)
    assert decide(3, 5) == WorkerCounts(3, 5)
    assert decide(20, None) == WorkerCounts(20, 1)
    assert decide(None, None, processes=False) == WorkerCounts(1, 8)


@pytest.mark.parametrize("counts", [(-1, None), (1.5, None), ("2", None), (True, 1), (None, 0)])
def test_numbers_of_workers_that_make_no_sense_are_refused(counts):
    with pytest.raises(ConfigError, match="is not a whole number"):
        settings.decide_counts(*counts)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:8787", ("127.0.0.1", 8787)),
        (":0", ("127.0.0.1", 0)),
        ("8787", ("127.0.0.1", 8787)),
        ("[::1]:80", ("::1", 80)),
        ("host.example:1", ("host.example", 1)),
    ],
)
def test_a_host_and_port_are_read(text, expected):
    assert parse_host_port(text, "x") == expected


@pytest.mark.parametrize("text", ["", "host", "host:", "host:99999", "::1:80", "host:-1"])
def test_a_text_that_is_no_host_and_port_is_refused(text):
    with pytest.raises(ConfigError, match="is not host:port"):
        parse_host_port(text, "x")


def test_this_machine_has_memory():
    assert settings.total_memory() > 64 << 20


def test_a_container_s_limit_counts(monkeypatch):
    whole = settings.total_memory()
    monkeypatch.setattr(settings, "memory_limit", lambda: 1 << 30)
    assert settings.total_memory() == (1 << 30) - settings.CONTAINER_RESERVE
    # Not more than a half is kept back.
    monkeypatch.setattr(settings, "memory_limit", lambda: 10**8)
    assert settings.total_memory() == 5 * 10**7
    monkeypatch.setattr(settings, "memory_limit", lambda: 1 << 62)
    assert settings.total_memory() == whole


def test_the_memory_that_a_pod_states_is_its_limit_where_none_can_be_read(monkeypatch):
    monkeypatch.setattr(settings, "memory_limit", lambda: None)
    whole = settings.total_memory()
    monkeypatch.setenv("WEFT_POD_MEMORY", str(1 << 30))
    assert settings.total_memory() == (1 << 30) - settings.CONTAINER_RESERVE
    monkeypatch.setattr(settings, "memory_limit", lambda: 1 << 29)
    assert settings.total_memory() == (1 << 29) - settings.CONTAINER_RESERVE
    monkeypatch.setattr(settings, "memory_limit", lambda: None)
    for text in ("", "0", "1Gi", str(1 << 60)):
        monkeypatch.setenv("WEFT_POD_MEMORY", text)
        assert settings.total_memory() == whole
