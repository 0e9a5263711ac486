"""A cluster whose identity comes from files: a new pod of Kubernetes starts the same scheduler."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

import weft
from tests.deploy.daemons import daemon, file_of, run, scheduler
from weft.protocol.errors import ConfigError
from weft.protocol.trust.connection_file import ConnectionFile
from weft.protocol.trust.secret_files import read_token_file
from weft.protocol.trust.security import (
    Security,
    generate_certificate,
    new_cluster_id,
    new_token,
)
from weft.protocol.wire.levels import Level

pytestmark = pytest.mark.slow

TRUST = {"WEFT_TRUST_MOUNTED_SECRETS": "1"}


def mount(folder: Path, data: dict[str, str]) -> Path:
    """Write a Secret as the kubelet mounts it: links by way of `..data`, readable for all."""
    there = folder / "..2026_01_01"
    there.mkdir(parents=True)
    (folder / "..data").symlink_to(there.name)
    for name, text in data.items():
        (there / name).write_text(text)
        (there / name).chmod(0o644)
        (folder / name).symlink_to(Path("..data") / name)
    return folder


@pytest.fixture
def secret(tmp_path) -> Path:
    """The Secret of a cluster, mounted."""
    cluster_id = new_cluster_id()
    certificate, key = generate_certificate(cluster_id)
    security = Security(new_token().encode(), cluster_id)
    return mount(
        tmp_path / "secret",
        {
            "admin-token": security.token_for("admin"),
            "worker-token": security.token_for("worker"),
            "client-token": security.token_for("client"),
            "cluster-id": cluster_id.hex(),
            "tls.crt": certificate,
            "tls.key": key,
        },
    )


def options(secret: Path) -> list[str]:
    return [
        f"--token-file={secret / 'admin-token'}",
        f"--cluster-id-file={secret / 'cluster-id'}",
        f"--certificate-file={secret / 'tls.crt'}",
        f"--key-file={secret / 'tls.key'}",
    ]


def test_a_scheduler_in_a_new_folder_is_the_same_cluster(tmp_path, secret, monkeypatch):
    monkeypatch.setenv("WEFT_TOKEN_FILE", str(secret / "client-token"))
    monkeypatch.setenv("WEFT_TRUST_MOUNTED_SECRETS", "1")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    address = f"tls://127.0.0.1:{port}"
    given = [*options(secret), "--protocol=tls", "--no-restart", "--port", str(port)]
    found = []
    worker_token = str(secret / "worker-token")
    with daemon(
        *("worker", address, "--nworkers", "2", "--connect-timeout", "60"),
        folder=tmp_path,
        WEFT_TOKEN_FILE=worker_token,
        **TRUST,
    ) as workers:
        with scheduler(*given, f"--state-dir={tmp_path / 'one'}", folder=tmp_path, **TRUST) as one:
            workers.wait_for("registered", 2)
            found.append(ConnectionFile.read(file_of(one)))
            client = weft.Client(address)
            calls = client.map(lambda n: n * n, range(200))
            assert client.gather(calls) == [n * n for n in range(200)]
            one.process.kill()
            one.process.wait(30)
        with client, scheduler(*given, f"--state-dir={tmp_path / 'two'}", folder=tmp_path, **TRUST):
            workers.wait_for("is back", 2)
            assert client.submit(sum, calls).result(60) == sum(n * n for n in range(200))
            found.append(ConnectionFile.read(tmp_path / "run" / "weft" / f"scheduler-{port}.json"))
    first, second = found
    assert first.cluster_id == second.cluster_id == (secret / "cluster-id").read_text()
    assert first.certificate_pem == second.certificate_pem == (secret / "tls.crt").read_text()
    # Secrets that are given as files are not copied.
    for name in ("admin-token", "tls.key"):
        text = (secret / name).read_text()
        for folder in ("one", "two"):
            for path in (tmp_path / folder).iterdir():
                assert text.strip()[:80] not in path.read_text()


def test_mistakes_in_the_files_are_one_line_that_names_the_file_and_what_to_do(tmp_path, secret):
    def fails(*words: str, more: list[str], env: dict[str, str] = TRUST) -> None:
        arguments = ["scheduler", "--port=0", "--no-dashboard", "--protocol=tls", *more]
        done = run(*arguments, folder=tmp_path, **env)
        assert done.returncode == 2, done.stderr
        assert done.stderr.count("\n") == 1, done.stderr
        for word in words:
            assert word in done.stderr, done.stderr

    certificate, key, token, cluster = options(secret)[2:] + options(secret)[:2]
    fails("--certificate-file is given without --key-file", more=[certificate])
    fails("--key-file is given without --certificate-file", more=[key])
    other = tmp_path / "other"
    other.write_text("nothing")
    other.chmod(0o600)
    fails(str(other), "32 hexadecimal digits", more=[f"--cluster-id-file={other}"])
    fails(str(other), "not PEM", more=[f"--certificate-file={other}", key])
    fails("no private key /nowhere", more=[certificate, "--key-file=/nowhere"])
    fails("/nowhere: No such file", more=["--cluster-id-file=/nowhere"])
    other.write_text(generate_certificate(new_cluster_id())[1])
    fails(str(other), "the key that of the first", more=[certificate, f"--key-file={other}"])
    # Without the variable the links of Kubernetes are refused.
    fails("symbolic link", more=[certificate, key], env={})
    view = tmp_path / "view"
    view.write_text(Security(new_token().encode()).token_for(Level.VIEW.label))
    view.chmod(0o600)
    fails("role view", "the token of role admin", more=[f"--token-file={view}"])
    state = f"--state-dir={tmp_path / 'state'}"
    with scheduler(token, cluster, state, "--no-restart", folder=tmp_path, **TRUST):
        pass
    other.write_text(new_cluster_id().hex())
    fails("is of cluster", "give another --state-dir", more=[f"--cluster-id-file={other}", state])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_secret_that_this_user_cannot_read_is_an_error_with_the_user(tmp_path):
    locked = tmp_path / "locked"
    locked.write_text(new_token())
    locked.chmod(0o600)
    folders = [tmp_path, *tmp_path.parents[:2]]
    modes = [folder.stat().st_mode for folder in folders]
    for folder in folders:
        folder.chmod(0o755)
    os.seteuid(1001)
    try:
        with pytest.raises(ConfigError) as raised:
            read_token_file(locked)
    finally:
        os.seteuid(0)
        for folder, mode in zip(folders, modes, strict=True):
            folder.chmod(mode)
    assert f"cannot open the token file {locked}: Permission denied" in str(raised.value)
    assert "user 1001 must be able to read it" in str(raised.value)
