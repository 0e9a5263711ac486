"""The scheduler to connect to is found without guessing, in the places of connection files."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from tests.protocol.trust.connection_file_kit import (
    CERTIFICATE,
    CLUSTER,
    TOKEN,
    make,
    mode,
    put,
)
from weft.protocol.errors import ConfigError
from weft.protocol.trust.connection_file import ConnectionFile
from weft.protocol.trust.finding import (
    default_path,
    find,
    remove_stale_files,
    run_directories,
    run_directory,
)
from weft.protocol.trust.security import Security, generate_certificate, new_cluster_id, new_token
from weft.protocol.wire.address import parse_address

# --- The run directory ----------------------------------------------------------------------------


def test_the_run_directory_is_made_private(home: Path, environ: dict[str, str]) -> None:
    before = os.umask(0)
    try:
        path = run_directory(environ)
    finally:
        os.umask(before)

    assert path == home / ".weft" / "run"
    assert mode(path) == mode(home / ".weft") == 0o700
    assert run_directory(environ) == path


def test_the_sessions_runtime_directory_comes_first(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    path = run_directory({**environ, "XDG_RUNTIME_DIR": str(runtime)})
    assert path == runtime / "weft"
    assert mode(path) == 0o700


@pytest.mark.parametrize("value", ["", "relative", "/nonexistent/for/sure"])
def test_an_unusable_runtime_directory_is_passed_over(
    home: Path, environ: dict[str, str], value: str
) -> None:
    assert run_directory({**environ, "XDG_RUNTIME_DIR": value}) == home / ".weft" / "run"


def test_the_runtime_directory_of_another_user_is_passed_over(
    tmp_path: Path, home: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # As after `su`.
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    us = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: us + 1)
    candidates = run_directories({**environ, "XDG_RUNTIME_DIR": str(runtime)})
    assert candidates == [home / ".weft" / "run"]


@pytest.mark.parametrize("bits", [0o755, 0o701, 0o770])
def test_a_run_directory_that_others_can_enter_is_refused(
    home: Path, environ: dict[str, str], bits: int
) -> None:
    path = run_directory(environ)
    path.chmod(bits)
    with pytest.raises(ConfigError, match=f"chmod 700 {path}"):
        run_directory(environ)


def test_a_run_directory_that_is_a_link_is_refused(
    tmp_path: Path, home: Path, environ: dict[str, str]
) -> None:
    (home / ".weft").mkdir(mode=0o700)
    (home / ".weft" / "run").symlink_to(tmp_path)
    with pytest.raises(ConfigError, match="not a directory"):
        run_directory(environ)


def test_the_default_path_is_a_name_in_the_run_directory(environ: dict[str, str]) -> None:
    assert default_path(environ=environ) == run_directory(environ) / "scheduler.json"
    assert default_path("my-project.2", environ).name == "my-project.2.json"
    for name in ("", "../x", "a/b", ".hidden", "a\0b", "x" * 101):
        with pytest.raises(ConfigError, match="cannot name a connection file"):
            default_path(name, environ)


# --- Find -----------------------------------------------------------------------------------------


def test_an_explicit_path_wins(tmp_path: Path, environ: dict[str, str]) -> None:
    explicit = put(tmp_path / "explicit.json", cluster_id="a" * 32)
    environ["WEFT_CONNECTION_FILE"] = str(put(tmp_path / "env.json"))
    put(default_path(environ=environ))

    found = find(str(explicit), None, environ)

    assert found.cluster_id == "a" * 32
    assert found.source == str(explicit)


def test_the_environments_path_comes_second(tmp_path: Path, environ: dict[str, str]) -> None:
    environ["WEFT_CONNECTION_FILE"] = str(put(tmp_path / "env.json", cluster_id="b" * 32))
    put(default_path(environ=environ))
    assert find(None, None, environ).cluster_id == "b" * 32


def test_a_bad_path_is_an_error_and_not_passed_over(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    put(default_path(environ=environ))
    missing = str(tmp_path / "missing.json")
    with pytest.raises(ConfigError, match="there is no connection file"):
        find(missing, None, environ)
    with pytest.raises(ConfigError, match=r"\$WEFT_CONNECTION_FILE: there is no connection file"):
        find(None, None, {**environ, "WEFT_CONNECTION_FILE": missing})


@pytest.mark.parametrize("where", ["argument", "environment"])
def test_an_address_beside_a_file_takes_the_place_of_the_files_own(
    tmp_path: Path, environ: dict[str, str], where: str
) -> None:
    path = str(put(tmp_path / "weft.json"))
    argument = path if where == "argument" else None
    if where == "environment":
        environ["WEFT_CONNECTION_FILE"] = path

    found = find(argument, "tls://localhost:9999", environ)

    assert found.addresses == ("tls://localhost:9999",)
    assert found.token == TOKEN
    assert found.certificate_pem == CERTIFICATE


def test_an_address_takes_its_token_from_the_token_file(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    path = tmp_path / "token"
    path.write_text("the-token-of-the-token-file")
    path.chmod(0o600)
    put(default_path(environ=environ))
    environ["WEFT_TOKEN_FILE"] = str(path)

    found = find(None, "tcp://127.0.0.1:8786", environ)

    assert found.token == "the-token-of-the-token-file"
    assert found.addresses == ("tcp://127.0.0.1:8786",)
    assert found.to_security() == Security(b"the-token-of-the-token-file")
    assert "WEFT_TOKEN_FILE" in found.source
    assert "the-token-of" not in repr(found)


def test_a_bad_token_file_is_an_error(tmp_path: Path, environ: dict[str, str]) -> None:
    path = tmp_path / "token"
    path.write_text(TOKEN)
    path.chmod(0o644)
    environ["WEFT_TOKEN_FILE"] = str(path)
    with pytest.raises(ConfigError, match=r"\$WEFT_TOKEN_FILE: .*chmod 600"):
        find(None, "tcp://127.0.0.1:8786", environ)


@pytest.mark.parametrize(
    "address", ["tcp://127.0.0.1:8786", "tcp://localhost:8786", "TCP://127.0.0.1:8786/"]
)
def test_an_address_takes_its_token_from_the_file_that_lists_it(
    environ: dict[str, str], address: str
) -> None:
    directory = run_directory(environ)
    put(directory / "a.json", addresses=["tcp://127.0.0.1:1"], cluster_id="a" * 32)
    put(directory / "b.json", cluster_id="b" * 32)

    found = find(None, address, environ)

    assert found.cluster_id == "b" * 32
    assert found.addresses == (address,)
    assert parse_address(address).port == 8786


@pytest.mark.parametrize(
    ("bare", "meant"),
    [
        ("10.0.0.1:8786", "tls://10.0.0.1:8786"),
        ("127.0.0.1:8786", "tcp://127.0.0.1:8786"),
        ("localhost:8786", "tcp://localhost:8786"),
    ],
)
def test_an_address_without_a_scheme_is_spelled_as_the_file_has_it(
    environ: dict[str, str], bare: str, meant: str
) -> None:
    put(run_directory(environ) / "a.json", addresses=["tcp://127.0.0.1:1"], cluster_id="a" * 32)
    put(run_directory(environ) / "b.json", cluster_id="b" * 32)

    found = find(None, bare, environ)

    assert (found.cluster_id, found.addresses) == ("b" * 32, (meant,))


def test_without_a_file_an_address_without_a_scheme_gets_weft_s_default_scheme(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    path = tmp_path / "token"
    path.write_text(TOKEN)
    path.chmod(0o600)
    environ["WEFT_TOKEN_FILE"] = str(path)
    assert find(None, "localhost:1", environ).addresses == ("tcp://localhost:1",)
    assert find(None, "[::1]:1", environ).addresses == ("tcp://[::1]:1",)
    assert find(None, "10.0.0.1:1", environ).addresses == ("tls://10.0.0.1:1",)


def test_the_end_of_a_tunnel_gets_the_scheme_of_the_scheduler(tmp_path: Path) -> None:
    path = str(put(tmp_path / "weft.json"))
    assert find(path, "localhost:9999", {}).addresses == ("tls://localhost:9999",)


def test_of_two_files_for_one_address_the_newer_is_used(environ: dict[str, str]) -> None:
    directory = run_directory(environ)
    put(directory / "a.json", cluster_id="a" * 32, host="elsewhere", created=2.0)
    put(directory / "b.json", cluster_id="b" * 32, host="elsewhere", created=1.0)
    assert find(None, "tcp://127.0.0.1:8786", environ).cluster_id == "a" * 32


def test_the_error_of_an_address_without_a_token_lists_the_places_searched(
    home: Path, environ: dict[str, str]
) -> None:
    put(default_path("other", environ))

    with pytest.raises(ConfigError, match=r"no token was found for tcp://10\.1\.1\.1:5") as caught:
        find(None, "tcp://10.1.1.1:5", environ)

    text = str(caught.value)
    assert "--connection-file (not given)" in text
    assert "$WEFT_CONNECTION_FILE (not set)" in text
    assert "$WEFT_TOKEN_FILE (not set)" in text
    assert f"{home}/.weft/run/other.json (is for tls://10.0.0.1:8786" in text
    assert TOKEN not in text


@pytest.mark.parametrize("address", ["", "http://127.0.0.1:1", "a:b:1"])
def test_a_text_that_is_no_address_is_refused(environ: dict[str, str], address: str) -> None:
    with pytest.raises(ConfigError, match=r"is not an address: use tcp://"):
        find(None, address, environ)


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:99999", "host:65536", f"host:{'9' * 5000}"])
def test_the_error_of_a_port_that_is_too_large_names_the_limit(
    environ: dict[str, str], address: str
) -> None:
    with pytest.raises(ConfigError, match=r"; its port is too large, the largest is 65535$"):
        find(None, address, environ)


def test_the_error_of_a_file_given_as_an_address_names_the_option(environ: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="connection_file="):
        find(None, "cluster.json", environ)


def test_the_only_file_in_the_run_directory_is_found(environ: dict[str, str]) -> None:
    path = default_path(environ=environ)
    make().write(path)
    (path.parent / "notes.txt").write_text("not ours")

    found = find(None, None, environ)

    assert found.source == str(path)
    assert found.addresses == ("tls://10.0.0.1:8786", "tcp://127.0.0.1:8786")


def test_both_run_directories_are_looked_at(tmp_path: Path, environ: dict[str, str]) -> None:
    make().write(default_path(environ=environ))
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    environ["XDG_RUNTIME_DIR"] = str(runtime)
    assert find(None, None, environ).cluster_id == CLUSTER.hex()

    put(default_path("second", environ), cluster_id="a" * 32)
    with pytest.raises(ConfigError, match="2 schedulers were found"):
        find(None, None, environ)


def test_several_files_are_listed_and_none_is_chosen(environ: dict[str, str]) -> None:
    put(default_path("first", environ))
    put(default_path("second", environ), addresses=["tcp://10.9.9.9:1"], host="far", pid=77)

    with pytest.raises(ConfigError, match="2 schedulers were found") as caught:
        find(None, None, environ)

    text = str(caught.value)
    assert "first.json" in text
    assert "second.json (tcp://10.9.9.9:1, process 77 on far)" in text
    assert "--connection-file" in text
    assert TOKEN not in text


def test_files_of_schedulers_that_are_gone_are_skipped(
    environ: dict[str, str], dead_pid: int
) -> None:
    gone = put(default_path("gone", environ), pid=dead_pid)
    with pytest.raises(ConfigError, match="no running scheduler was found") as caught:
        find(None, None, environ)
    assert f"{gone} (skipped: its scheduler, process {dead_pid}, is gone" in str(caught.value)

    # For another host this cannot be known.
    far = put(default_path("far", environ), pid=dead_pid, host="far")
    assert find(None, None, environ).source == str(far)


def test_only_files_of_schedulers_that_are_gone_are_removed(
    environ: dict[str, str], dead_pid: int
) -> None:
    gone = put(default_path("gone", environ), pid=dead_pid)
    far = put(default_path("far", environ), pid=dead_pid, host="far")
    alive = put(default_path("alive", environ))
    other = default_path("other", environ)
    other.write_text("{}")
    remove_stale_files(environ)
    assert [gone.exists(), far.exists(), alive.exists(), other.exists()] == [
        False,
        True,
        True,
        True,
    ]


def test_files_that_are_not_safe_are_skipped_and_explained(environ: dict[str, str]) -> None:
    path = put(default_path("open", environ))
    path.chmod(0o644)
    with pytest.raises(ConfigError, match=f"{path} .skipped: .*chmod 600"):
        find(None, None, environ)

    put(default_path("good", environ))
    assert find(None, None, environ).source.endswith("good.json")


def test_the_error_without_any_file_lists_the_places_and_no_directory_is_made(
    home: Path, environ: dict[str, str]
) -> None:
    with pytest.raises(ConfigError, match="no running scheduler was found") as caught:
        find(None, None, environ)

    assert f"{home}/.weft/run (does not exist)" in str(caught.value)
    assert "weft scheduler" in str(caught.value)
    assert os.listdir(home) == []

    run_directory(environ)
    with pytest.raises(ConfigError, match=r"no \*\.json in it"):
        find(None, None, environ)


def test_empty_variables_are_unset(environ: dict[str, str]) -> None:
    make().write(default_path(environ=environ))
    environ |= {"WEFT_CONNECTION_FILE": "", "WEFT_TOKEN_FILE": "", "XDG_RUNTIME_DIR": ""}
    assert find("", None, environ).token == TOKEN
    assert find(None, "tcp://127.0.0.1:8786", environ).token == TOKEN


def test_a_new_cluster_goes_all_the_way(environ: dict[str, str]) -> None:
    cluster_id = new_cluster_id()
    certificate, key = generate_certificate(cluster_id)
    security = Security(new_token().encode(), cluster_id, certificate, key)
    path = default_path(environ=environ)
    written = ConnectionFile.of_this_process(security, ["tls://10.0.0.1:8786"])
    written.write(path)

    found = find(None, None, environ)

    assert found.to_security() == dataclasses.replace(security, private_key_pem=None)
    assert written.remove(path)
