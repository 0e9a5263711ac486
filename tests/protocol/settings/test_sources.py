from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from weft.protocol.errors import ConfigError
from weft.protocol.settings import client, common, scheduler, sources, worker
from weft.protocol.settings.sources import read_settings


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine whose file of settings is in the test's folder; returns a function that reads."""
    monkeypatch.setattr(sources, "MACHINE_FILE", tmp_path / "etc" / "weft.toml")

    def read(named: str | None = None, *, etc: str = "", home: str = "", **variables: str):
        environ = {"HOME": str(tmp_path / "home"), **variables}
        for folder, text in (("etc", etc), ("home/.config/weft", home)):
            if text:
                (tmp_path / folder).mkdir(parents=True, exist_ok=True)
                (tmp_path / folder / "weft.toml").write_text(text)
        if named is not None:
            (tmp_path / "named.toml").write_text(named)
            environ["WEFT_CONFIG"] = str(tmp_path / "named.toml")
        return read_settings(environ)

    return read


def test_without_any_source_every_setting_has_its_default(machine):
    found = machine()
    assert found[scheduler.PORT] == 8786
    assert found.origin(scheduler.PORT) == ""
    assert not found.given
    assert list(found.files.values()) == [False, False]


def test_a_later_source_comes_before_an_earlier_one(machine, tmp_path):
    texts = [f"[worker]\nnthreads = {n}\n" for n in (1, 2, 3)]
    assert machine(etc=texts[0])[worker.NTHREADS] == 1
    assert machine(home=texts[1])[worker.NTHREADS] == 2
    found = machine(texts[2])
    assert (found[worker.NTHREADS], found.origin(worker.NTHREADS)) == (
        3,
        f"{tmp_path}/named.toml, line 2",
    )
    found = machine(WEFT_WORKER_NTHREADS="4")
    assert (found[worker.NTHREADS], found.origin(worker.NTHREADS)) == (4, "$WEFT_WORKER_NTHREADS")
    found = found.with_options({worker.NTHREADS: 5})
    assert (found[worker.NTHREADS], found.origin(worker.NTHREADS)) == (5, "--nthreads")


def test_sources_are_mixed_setting_by_setting(machine):
    found = machine(
        etc='log-level = "debug"\n[worker]\nnthreads = 1\nname = "etc"\n',
        home='[worker]\nname = "home"\n',
    )
    assert found[common.LOG_LEVEL] == "debug"
    assert (found[worker.NTHREADS], found[worker.NAME]) == (1, "home")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "[scheduler]\nprt = 1",
            ["line 2: there is no setting 'scheduler.prt'; did you"],
        ),
        ("[worker]\n\nmemory_limit = '1GB'", ["line 3", "did you mean memory-limit in [worker]?"]),
        ("nthreads = 2", ["line 1", "did you mean nthreads in [worker]?"]),
        ("[worker]\nstate-dir = 2", ["line 2", "did you mean state-dir in [scheduler]?"]),
        ("[sheduler]\nport = 2", ["line 2", "did you mean port in [scheduler]?"]),
        ("[scheduler]\n'prt' = 1", ["line 2: there is no setting"]),
        ("scheduler.prt = 1", ["line 1: there is no setting"]),
        ("scheduler = {prt = 1}", ["line 1: there is no setting"]),
        ("qwertz = 2", ["line 1: there is no setting 'qwertz'; 'weft config' lists"]),
        ("token = 'x'", ["line 1", "a secret is never a setting", "with token-file"]),
        ("[scheduler]\npassword = 'x'", ["line 2", "a secret is never a setting"]),
        ("trust-mounted-secrets = true", ["line 1", "is not read from files", "$WEFT_TRUST"]),
        ("[scheduler]\nport = 'x'", ["line 2: port: 'x' is not a whole number from 0 to 65535"]),
        ("[scheduler]\nport = 70000", ["line 2: port: 70000 is not between 0 and 65535"]),
        ("[scheduler]\nport = 1.5", ["line 2: port: 1.5 is not a whole number"]),
        ("[scheduler]\nport = true", ["line 2: port: True is not a whole number"]),
        ("[scheduler]\nhost = 5", ["line 2: host: 5 is not a text; put it into quotation marks"]),
        ("[scheduler]\nprotocol = 'ucx'", ["protocol: 'ucx' is not tcp, tls or unix"]),
        ("[scheduler]\nrestart = 1", ["restart: 1 is neither true nor false"]),
        ("[scheduler]\nclient-lease = 'soon'", ["client-lease: 'soon' is not a time"]),
        ("[scheduler]\ndashboard-address = 'x'", ["dashboard-address: 'x' is not host:port"]),
        ("[worker]\nnworkers = 0", ["nworkers: 0 is not a whole number from 1 to 4096, auto"]),
        ("[worker]\nmemory-limit = 'lots'", ["memory-limit: 'lots' is not a memory limit"]),
        ("[worker]\nmemory-limit = 1000", ["memory-limit: 1000 bytes is less than a Python"]),
        ("[worker]\nresources = 'GPU'", ["resources: 'GPU' is not NAME=AMOUNT"]),
        ("[worker]\nlocal-directory = 5", ["local-directory: 5 is not a path"]),
        ("[client]\nrecovery-memory = 'much'", ["recovery-memory: 'much' is not a size"]),
        ("[worker", ["line 1: it is not TOML"]),
        ("a = 1\nb = =", ["line 2: it is not TOML"]),
        ("a = 1\na = 2", ["line 2: it is not TOML"]),
    ],
)
def test_a_mistake_in_a_file_is_one_line_with_its_place(machine, tmp_path, text, words):
    with pytest.raises(ConfigError) as caught:
        machine(text)
    told = str(caught.value)
    assert told.startswith(f"{tmp_path}/named.toml, line")
    assert "\n" not in told
    assert [word for word in words if word not in told] == []


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("WEFT_WORKER_NTHREAD", "3", ["$WEFT_WORKER_NTHREAD; did you mean $WEFT_WORKER_NTHREADS?"]),
        ("WEFT_NTHREADS", "3", ["did you mean $WEFT_WORKER_NTHREADS?"]),
        ("WEFT_QWERTZ", "3", ["'weft config' lists the settings"]),
        ("WEFT_TOKEN", "abc", ["a secret is never a setting", "with $WEFT_TOKEN_FILE"]),
        ("WEFT_WORKER_NTHREADS", "x", ["$WEFT_WORKER_NTHREADS: 'x' is not a whole number"]),
        ("WEFT_SCHEDULER_RESTART", "perhaps", ["'perhaps' is neither true nor false"]),
    ],
)
def test_a_mistake_in_the_environment_is_one_line(machine, name, value, words):
    with pytest.raises(ConfigError) as caught:
        machine(**{name: value})
    told = str(caught.value)
    assert "\n" not in told
    assert value not in told or len(value) > 4 or "'" in told
    assert [word for word in words if word not in told] == []


def test_a_secret_in_the_environment_is_not_quoted(machine):
    with pytest.raises(ConfigError) as caught:
        machine(WEFT_TOKEN="hunter2-hunter2")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        # Kubernetes sets these for Services named weft, weft-scheduler and weft-worker.
        ("WEFT_SERVICE_HOST", "10.0.0.1"),
        ("WEFT_SCHEDULER_SERVICE_PORT_HTTP", "8787"),
        ("WEFT_SCHEDULER_PORT", "tcp://10.0.0.1:8786"),
        ("WEFT_WORKER_PORT_8786_TCP_ADDR", "10.0.0.1"),
        ("WEFT_PORT", "udp://10.0.0.1:8786"),
        # Weft's own, for tests and for the place of a file.
        ("WEFT_TOOLS", "/somewhere"),
        ("WEFT_SIM_SEED", "7"),
        # As good as unset.
        ("WEFT_SCHEDULER_PORT", ""),
        ("WEFT_QWERTZ", ""),
    ],
)
def test_a_variable_that_is_no_setting_is_left_alone(machine, name, value):
    assert not machine(**{name: value}).given


def test_the_port_of_the_scheduler_comes_from_its_variable_all_the_same(machine):
    assert machine(WEFT_SCHEDULER_PORT="9000")[scheduler.PORT] == 9000


def test_a_path_in_a_file_starts_at_the_folder_of_the_file(machine, tmp_path):
    found = machine("connection-file = 'c.json'\ntoken-file = '/elsewhere/token'\n")
    assert found[common.CONNECTION_FILE] == tmp_path / "c.json"
    assert found[common.TOKEN_FILE] == Path("/elsewhere/token")
    found = machine("connection-file = '~/c.json'\n")
    assert found[common.CONNECTION_FILE] == Path.home() / "c.json"


def test_values_of_a_file_may_be_of_toml_s_types_or_texts(machine):
    found = machine(
        "[scheduler]\nport = 9000\nrestart = false\nclient-lease = 5\ndashboard-address = 9001\n"
        "[worker]\nnworkers = -2\nnthreads = 'auto'\nmemory-limit = 0.5\n"
        "resources = { GPU = 2, MEM = 1e9 }\ngrace-period = '2 min'\n"
        "[client]\nrecovery-memory = '1GiB'\n"
    )
    assert (found[scheduler.PORT], found[scheduler.RESTART]) == (9000, False)
    assert found[scheduler.CLIENT_LEASE] == 5.0
    assert found[scheduler.DASHBOARD_ADDRESS] == "9001"
    assert (found[worker.NWORKERS], found[worker.NTHREADS]) == (-2, None)
    assert found[worker.MEMORY_LIMIT] == 0.5
    assert found[worker.RESOURCES] == {"GPU": 2.0, "MEM": 1e9}
    assert found[worker.GRACE_PERIOD] == 120.0
    assert found[client.RECOVERY_MEMORY] == 1 << 30


def test_a_named_file_that_is_missing_is_an_error_and_others_are_left_out(machine, tmp_path):
    with pytest.raises(ConfigError, match=r"\$WEFT_CONFIG: cannot read .*nothing.toml: No such"):
        read_settings({"HOME": str(tmp_path), "WEFT_CONFIG": str(tmp_path / "nothing.toml")})
    with pytest.raises(ConfigError, match="Is a directory"):
        read_settings({"HOME": str(tmp_path), "WEFT_CONFIG": str(tmp_path)})


def test_xdg_config_home_moves_the_file_of_the_user(machine, tmp_path):
    folder = tmp_path / "config" / "weft"
    folder.mkdir(parents=True)
    (folder / "weft.toml").write_text("log-level = 'error'")
    assert machine(XDG_CONFIG_HOME=str(tmp_path / "config"))[common.LOG_LEVEL] == "error"
    assert machine(XDG_CONFIG_HOME="config")[common.LOG_LEVEL] == "info"


@pytest.mark.skipif(sys.platform == "win32", reason="permissions there are of another kind")
def test_a_file_that_other_users_may_write_is_refused(machine, tmp_path):
    path = tmp_path / "home" / ".config" / "weft" / "weft.toml"
    machine(home="log-level = 'error'")
    path.chmod(0o666)
    with pytest.raises(ConfigError, match=f"every user of this machine; run: chmod o-w {path}"):
        machine()
    path.chmod(0o644)
    if os.geteuid() == 0:
        os.chown(path, 12345, -1)
        with pytest.raises(ConfigError, match="belongs to another user \\(id 12345\\)"):
            machine()


def test_a_file_that_is_not_text_or_too_large_is_refused(machine, tmp_path):
    path = tmp_path / "home" / ".config" / "weft" / "weft.toml"
    machine(home="# nothing")
    path.write_bytes(b"# one\n# \xff\n")
    with pytest.raises(ConfigError, match=r"weft.toml, line 2: it is not UTF-8"):
        machine()
    path.write_bytes(b"#" * ((1 << 20) + 1))
    with pytest.raises(ConfigError, match="larger than 1 MiB"):
        machine()
