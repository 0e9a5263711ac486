"""`weft doctor` as a user runs it: without a scheduler, with one, and in the ways it may fail."""

from __future__ import annotations

import contextlib
import json
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.daemons import address_of, daemon, file_of, run, scheduler
from weft.deploy.doctor import steps
from weft.deploy.doctor.checks import FAILED
from weft.deploy.doctor.gathering import examine
from weft.protocol.trust.connection_file import ConnectionFile
from weft.protocol.trust.security import new_token

pytestmark = pytest.mark.slow


def failed(done: Any) -> list[dict[str, str]]:
    assert done.returncode == 1, done.stdout + done.stderr
    assert "role admin" not in done.stdout  # nobody has accepted the token
    found = json.loads(done.stdout)
    assert found["worst"] == "failed"
    return [check for check in found["checks"] if check["level"] == "failed"]


def write(path: Path, address: str, **fields: Any) -> Path:
    """Write a connection file of a scheduler on another machine."""
    file = ConnectionFile("c" * 32, (address,), new_token(), pid=1, host="elsewhere", **fields)
    path.write_text(file.to_text())
    path.chmod(0o600)
    return path


def test_without_a_scheduler_it_names_the_command_that_starts_one(tmp_path):
    done = run("doctor", folder=tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    assert "no running scheduler was found" in done.stdout
    assert "-> start one with 'weft scheduler'" in done.stdout
    assert "this machine\n  ok" in done.stdout


@pytest.mark.parametrize(
    ("address", "name", "words"),
    [
        ("tcp://no.such.invalid:1", "name", ["no.such.invalid does not resolve", "/etc/hosts"]),
        ("tcp://127.0.0.1:1", "port", ["no process listens at", "weft scheduler"]),
        ("unix:///no/such.sock", "port", ["/no/such.sock", "weft scheduler"]),
    ],
)
def test_the_step_on_the_way_that_fails_is_named(address, name, words, tmp_path):
    file = write(tmp_path / "f.json", address)
    (check,) = failed(run("doctor", "--connection-file", str(file), "--json", folder=tmp_path))
    assert check["name"] == name
    assert [word for word in words if word not in check["text"] + check["advice"]] == []


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("127.0.0.1:1", "port"),
        ("tcp://no.such.invalid:1", "name"),
        ("unix:///no/such.sock", "port"),
    ],
)
def test_an_address_at_which_nobody_listens_is_no_fault_of_a_file(address, name, tmp_path):
    (check,) = failed(run("doctor", address, "--json", folder=tmp_path))
    assert check["name"] == name
    assert check["place"] == "the way to the scheduler"


def test_a_port_that_is_open_and_of_which_no_token_is_known_is_a_fault_of_the_file(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"tcp://127.0.0.1:{other.getsockname()[1]}"
        done = run("doctor", address, "--json", folder=tmp_path)
    (check,) = failed(done)
    assert check["name"] == "file"
    assert "--connection-file" in check["advice"]
    ports = [check for check in json.loads(done.stdout)["checks"] if check["name"] == "port"]
    assert [port["level"] for port in ports] == ["ok"]


def test_a_port_of_which_packets_are_dropped_is_named_with_the_firewall(tmp_path, monkeypatch):
    monkeypatch.setattr(steps, "TIMEOUT_S", 0.3)
    # Linux drops what asks for a connection while the queue of those to be accepted is full.
    with socket.socket() as busy, contextlib.ExitStack() as waiting:
        busy.bind(("127.0.0.1", 0))
        busy.listen(0)
        for _ in range(4):
            sock = waiting.enter_context(socket.socket())
            sock.setblocking(False)
            sock.connect_ex(busy.getsockname())
        address = f"tcp://127.0.0.1:{busy.getsockname()[1]}"
        checks = examine(str(write(tmp_path / "f.json", address)), None)
    (check,) = [check for check in checks if check.level == FAILED]
    assert (check.name, check.text) == ("port", f"{address} does not answer within 0.3 s")
    assert check.advice.startswith("a firewall may drop the packets")


def test_a_port_without_tls_is_recognised(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tls://127.0.0.1:{silent.getsockname()[1]}"
        file = write(tmp_path / "f.json", address)
        (check,) = failed(run("doctor", "--connection-file", str(file), "--json", folder=tmp_path))
    assert check["name"] == "tls"


def test_a_file_that_others_can_read_is_named_with_the_command_that_mends_it(tmp_path):
    file = write(tmp_path / "f.json", "tcp://127.0.0.1:1")
    file.chmod(0o644)
    (check,) = failed(run("doctor", "--connection-file", str(file), "--json", folder=tmp_path))
    assert check["name"] == "file"
    assert "chmod 600" in check["text"] + check["advice"]


def test_a_cluster_that_is_well_has_all_checks_with_a_token_that_only_reads(tmp_path):
    with (
        scheduler("--protocol", "tls", folder=tmp_path) as started,
        daemon("worker", "--nworkers", "2", "--nthreads", "1", folder=tmp_path) as workers,
    ):
        workers.wait_for("registered", 2)
        view = str(tmp_path / "view.json")
        assert run("token", "--role", "view", "--output", view, folder=tmp_path).returncode == 0
        done = run("doctor", "--connection-file", view, "--json", folder=tmp_path)
        assert done.stderr == ""
        checks = json.loads(done.stdout)["checks"]
        # The loop of a scheduler may be late on a loaded machine.
        bad = {check["name"] for check in checks if check["level"] == "failed"}
        assert bad <= {"loop", "health"}, done.stdout
        assert done.returncode == bool(bad)
        names = {(check["place"], check["name"]) for check in checks}
        steps = "the way to the scheduler"
        machine = {place for place, _ in names if place.startswith("machine ")}.pop()
        assert names >= {
            *[(steps, name) for name in ("file", "name", "port", "tls", "token")],
            *[("scheduler", name) for name in ("workers", "clock", "files", "round trip")],
            *[(machine, name) for name in ("clock", "memory", "limits", "pages", "disk")],
            *[("versions", name) for name in ("python", "packages")],
        }
        (python,) = [check for check in checks if check["name"] == "python"]
        assert python["level"] == "ok"
        # A token of another cluster.
        other = json.loads(file_of(started).read_text())
        other["token"] = new_token()
        path = tmp_path / "other.json"
        path.write_text(json.dumps(other))
        path.chmod(0o600)
        done = run("doctor", "--connection-file", str(path), "--json", folder=tmp_path)
        (check,) = failed(done)
        assert check["name"] == "token"
        assert "weft token" in check["advice"]
        listed = run("doctor", "--security", address_of(started), folder=tmp_path)
        assert listed.returncode == 0
        assert "TLS 1.3" in listed.stdout
        assert other["token"] not in listed.stdout


def test_a_scheduler_without_workers_is_a_warning(tmp_path):
    with scheduler(folder=tmp_path):
        done = run("doctor", folder=tmp_path)
        strict = run("doctor", "--strict", folder=tmp_path)
    assert (done.returncode, strict.returncode) == (0, 1), done.stdout + strict.stdout
    for report in (done.stdout, strict.stdout):
        assert "none is connected" in report
        assert "start some with 'weft worker'" in report
        assert report.splitlines()[-1].endswith(" 0 failed")
