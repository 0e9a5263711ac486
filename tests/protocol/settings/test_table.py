from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from weft.client.core.recipes import LIMIT_NBYTES
from weft.protocol.errors import ConfigError
from weft.protocol.settings import client, common, scheduler
from weft.protocol.settings.kinds import Flag, Ports, Size, Texts, TimeSpan
from weft.protocol.settings.table import ALL, BY_NAME, BY_VARIABLE, is_variable_of_others
from weft.protocol.trust.addresses import DEFAULT_PORT
from weft.protocol.trust.secret_files import TRUST_VARIABLE
from weft.protocol.wire.session import MISSED_HEARTBEATS
from weft.scheduler.config import SchedulerConfig


def test_names_and_variables_are_unique():
    assert len(BY_NAME) == len(BY_VARIABLE) == len(ALL)
    assert not [name for name in BY_VARIABLE if is_variable_of_others(name, "1")]


@pytest.mark.parametrize("setting", ALL, ids=lambda setting: setting.name)
def test_a_setting_reads_what_it_shows(setting):
    default = setting.default
    if default is not None and default != {}:
        assert setting.kind.read(setting.kind.show(default), "here") == default
    assert setting.text.endswith(".")
    assert setting.kind.words


@pytest.mark.parametrize("setting", ALL, ids=lambda setting: setting.name)
def test_a_value_of_a_wrong_type_is_one_line_that_names_the_setting(setting):
    with pytest.raises(ConfigError) as caught:
        setting.kind.read(object, "here")
    assert str(caught.value).startswith("here: ")
    assert "\n" not in str(caught.value)


def test_defaults_that_the_code_has_as_well_are_the_same():
    assert scheduler.PORT.default == DEFAULT_PORT
    assert client.RECOVERY_MEMORY.default == LIMIT_NBYTES
    assert common.TRUST_MOUNTED_SECRETS.environment == TRUST_VARIABLE


def test_the_defaults_of_a_scheduler_are_those_of_its_configuration():
    fields = {field.name: field.default for field in dataclasses.fields(SchedulerConfig)}
    assert scheduler.ALLOWED_DEATHS.default == fields["allowed_deaths"]
    assert scheduler.BLOCK_AFTER.default == fields["block_after"]
    assert scheduler.BLOCK_FOR.default == fields["block_for_s"]
    assert scheduler.TARGET_DURATION.default == fields["target_duration_s"]
    assert (scheduler.NO_WORKER_TIMEOUT.default or 0.0) == fields["no_worker_timeout_s"]
    assert scheduler.OUTBOX_MEMORY.default == fields["max_outbox_nbytes"]
    assert scheduler.UNFINISHED_MEMORY.default == fields["max_unfinished_nbytes"]
    assert scheduler.CLIENT_LEASE.default == fields["client_lease_s"]
    assert scheduler.LIVENESS_TIMEOUT.default == fields["heartbeat_s"] * MISSED_HEARTBEATS


def test_variables_in_the_files_of_deploy_are_accepted():
    """A variable that is no setting would end each command in whose environment it is."""
    named = set()
    for path in (Path(__file__).parents[3] / "deploy").rglob("*"):
        if path.is_file() and path.suffix not in {".py", ".pyc", ".md"}:
            named |= set(re.findall(r"WEFT_[A-Z][A-Z_]*[A-Z]", path.read_text(errors="ignore")))
    assert {"WEFT_TOKEN_FILE", "WEFT_SCHEDULER_HOST"} <= named
    unknown = {n for n in named - set(BY_VARIABLE) if not is_variable_of_others(n, "1")}
    assert not unknown


def test_kinds_show_values_as_users_write_them():
    assert [TimeSpan().show(s) for s in (0.5, 60.0, 90.0, 900.0, 7200.0)] == [
        "0.5s",
        "60s",
        "90s",
        "15m",
        "2h",
    ]
    assert [Size().show(n) for n in (5, 1 << 20, 3 << 30)] == ["5", "1MiB", "3GiB"]
    assert Flag().show(False) == "false"
    assert Texts().read("a, b,,c", "x") == ("a", "b", "c")
    assert Texts().show(("a", "b")) == "a,b"
    assert [Ports().show(Ports().read(text, "x")) for text in ("0", "9000", "9000:9010")] == [
        "0",
        "9000",
        "9000:9010",
    ]


@pytest.mark.parametrize("text", ["x", "9000:", ":9000", "9010:9000", "0:9000", "70000", "-1"])
def test_a_wrong_range_of_ports_is_refused(text):
    with pytest.raises(ConfigError, match="neither a port nor a range of ports"):
        Ports().read(text, "--worker-port")
