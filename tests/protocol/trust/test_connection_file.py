"""The connection file: written safely, and read with suspicion.

File permissions are compared as modes and never tried out: the tests may run as root, for whom
every file is readable.
"""

from __future__ import annotations

import dataclasses
import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.protocol.trust.connection_file_kit import (
    CERTIFICATE,
    CLUSTER,
    KEY,
    TOKEN,
    make,
    mode,
    put,
)
from weft.protocol.errors import ConfigError
from weft.protocol.trust.addresses import address_key
from weft.protocol.trust.connection_file import ConnectionFile
from weft.protocol.trust.finding import (
    default_path,
    find,
)
from weft.protocol.trust.secret_files import read_token_file
from weft.protocol.trust.security import Security

# --- Write and read -------------------------------------------------------------------------------


def test_a_written_file_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "weft.json"
    written = make()

    written.write(path)

    assert ConnectionFile.read(path) == written
    assert ConnectionFile.read(str(path)).source == str(path)
    assert written.pid == os.getpid()
    assert written.host == socket.gethostname()


def test_the_file_has_the_data_for_peers_and_not_the_private_key(tmp_path: Path) -> None:
    path = tmp_path / "weft.json"
    make().write(path)

    assert "PRIVATE" not in path.read_text()
    assert ConnectionFile.read(path).to_security() == Security(
        TOKEN.encode(), CLUSTER, CERTIFICATE, None
    )


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_the_file_is_private_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    path = tmp_path / "made" / "on the way" / "weft.json"
    before = os.umask(umask)
    try:
        make().write(path)
    finally:
        os.umask(before)

    assert mode(path) == 0o600
    assert mode(path.parent) == mode(path.parent.parent) == 0o700
    assert os.listdir(path.parent) == ["weft.json"]


def test_our_own_file_is_replaced_in_one_step(tmp_path: Path) -> None:
    path = tmp_path / "weft.json"
    make().write(path)
    old = open(path)  # noqa: SIM115
    newer = make(addresses=("tcp://127.0.0.1:1",))

    newer.write(path)

    with old:
        # A reader that opened the old file reads all of it: it was replaced, not overwritten.
        assert json.load(old)["addresses"] == ["tls://10.0.0.1:8786", "tcp://127.0.0.1:8786"]
    assert ConnectionFile.read(path) == newer
    assert os.listdir(tmp_path) == ["weft.json"]


def test_a_file_of_a_scheduler_that_has_ended_is_replaced(tmp_path: Path, dead_pid: int) -> None:
    path = put(tmp_path / "weft.json", pid=dead_pid, cluster_id="f" * 32)
    make().write(path)
    assert ConnectionFile.read(path) == make(created=ConnectionFile.read(path).created)


def test_a_file_whose_pid_is_now_another_process_is_stale(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    # As after a reboot: our parent runs, but it is far younger than the file.
    path = put(default_path(environ=environ), pid=os.getppid(), created=1000.0)
    assert ConnectionFile.read(path).is_stale()
    with pytest.raises(ConfigError, match="is gone"):
        find(None, None, environ)

    make().write(path)

    assert not ConnectionFile.read(path).is_stale()


def test_a_file_of_a_running_scheduler_is_not_replaced(tmp_path: Path) -> None:
    path = put(tmp_path / "weft.json", pid=os.getppid(), cluster_id="f" * 32)
    before = path.read_text()

    with pytest.raises(ConfigError, match=f"process {os.getppid()}, that is running"):
        make().write(path)

    assert path.read_text() == before
    assert os.listdir(tmp_path) == ["weft.json"]


def test_a_file_that_is_something_else_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "precious.txt"
    path.write_text("my thesis")
    path.chmod(0o600)

    with pytest.raises(ConfigError, match="will not be replaced"):
        make().write(path)

    assert path.read_text() == "my thesis"


def test_a_symbolic_link_is_not_written_through(tmp_path: Path) -> None:
    target = tmp_path / "target.json"
    (tmp_path / "weft.json").symlink_to(target)

    with pytest.raises(ConfigError, match="symbolic link"):
        make().write(tmp_path / "weft.json")

    assert not target.exists()


@pytest.mark.parametrize("bits", [0o777, 0o770, 0o702])
def test_a_directory_that_others_can_write_to_is_refused(tmp_path: Path, bits: int) -> None:
    directory = tmp_path / "shared"
    directory.mkdir()
    directory.chmod(bits)

    with pytest.raises(ConfigError, match="others may replace files"):
        make().write(directory / "weft.json")
    assert os.listdir(directory) == []

    # Where the sticky bit is set, as on /tmp, other users cannot replace this user's files.
    directory.chmod(bits | 0o1000)
    make().write(directory / "weft.json")
    assert mode(directory / "weft.json") == 0o600


def test_a_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="directory"):
        make().write(tmp_path / "file" / "weft.json")
    with pytest.raises(ConfigError, match="cannot make the directory"):
        make().write(tmp_path / "file" / "deeper" / "weft.json")


@pytest.mark.parametrize(
    "changes",
    [
        {"cluster_id": ""},
        {"addresses": ()},
        {"addresses": ("127.0.0.1:8786",)},
        {"token": "short"},
        {"pid": 0},
        {"certificate_pem": CERTIFICATE + KEY},
    ],
)
def test_data_that_could_not_be_read_back_is_not_written(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError, match="not a usable connection file"):
        make(**changes).write(tmp_path / "weft.json")
    assert os.listdir(tmp_path) == []


def test_a_scheduler_without_a_cluster_id_cannot_write_one() -> None:
    with pytest.raises(ConfigError, match="cluster id"):
        ConnectionFile.of_this_process(Security(TOKEN.encode()), ["tcp://127.0.0.1:1"])


# --- Remove ---------------------------------------------------------------------------------------


def test_a_scheduler_removes_its_own_file(tmp_path: Path) -> None:
    path = tmp_path / "weft.json"
    file = make()
    file.write(path)

    assert file.remove(path)
    assert not path.exists()
    assert not file.remove(path)


@pytest.mark.parametrize("changes", [{"cluster_id": "f" * 32}, {"pid": 1}])
def test_a_scheduler_leaves_its_successors_file(tmp_path: Path, changes: dict[str, Any]) -> None:
    path = put(tmp_path / "weft.json", **changes)
    assert not make().remove(path)
    assert path.exists()


def test_a_scheduler_leaves_a_file_that_it_does_not_know(tmp_path: Path) -> None:
    path = tmp_path / "weft.json"
    path.write_text("my thesis")
    assert not make().remove(path)
    assert path.exists()


# --- Unsafe and malformed files -------------------------------------------------------------------


@pytest.mark.parametrize("bits", [0o640, 0o604, 0o620, 0o602, 0o610, 0o644, 0o666, 0o777])
def test_a_file_that_others_can_use_is_refused(tmp_path: Path, bits: int) -> None:
    path = put(tmp_path / "weft.json")
    path.chmod(bits)
    with pytest.raises(ConfigError, match=f"mode {bits:04o}.*chmod 600 {path}"):
        ConnectionFile.read(path)


@pytest.mark.parametrize("bits", [0o600, 0o400])
def test_a_private_file_is_read(tmp_path: Path, bits: int) -> None:
    path = put(tmp_path / "weft.json")
    path.chmod(bits)
    assert ConnectionFile.read(path).token == TOKEN


def test_a_file_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path / "weft.json")
    us = os.geteuid()
    # Not by chown, which only root may do.
    monkeypatch.setattr(os, "geteuid", lambda: us + 1)
    with pytest.raises(ConfigError, match=f"belongs to user {us}, not to you"):
        ConnectionFile.read(path)


def test_a_symbolic_link_is_refused(tmp_path: Path) -> None:
    put(tmp_path / "real.json")
    (tmp_path / "link.json").symlink_to(tmp_path / "real.json")
    with pytest.raises(ConfigError, match="symbolic link"):
        ConnectionFile.read(tmp_path / "link.json")


def test_a_path_that_is_no_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo", 0o600)
    with pytest.raises(ConfigError, match="not a regular file"):
        ConnectionFile.read(tmp_path / "fifo")
    with pytest.raises(ConfigError, match="not a regular file"):
        ConnectionFile.read(tmp_path)
    with pytest.raises(ConfigError, match="is the scheduler running"):
        ConnectionFile.read(tmp_path / "nothing")
    with pytest.raises(ConfigError, match="Not a directory"):
        ConnectionFile.read(put(tmp_path / "weft.json") / "below")


def test_the_size_is_bounded(tmp_path: Path) -> None:
    size = len(put(tmp_path / "weft.json", created=1.0, comment="").read_bytes())
    room = 64 * 1024 - size
    fits = put(tmp_path / "weft.json", created=1.0, comment="x" * room)
    assert ConnectionFile.read(fits).token == TOKEN

    too_large = put(tmp_path / "weft.json", created=1.0, comment="x" * (room + 1))
    with pytest.raises(ConfigError, match="larger than 65536 bytes"):
        ConnectionFile.read(too_large)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe\xfd",
        b"[" * 30_000,
        b'{"token": "' + TOKEN.encode(),
        b"9" * 10_000,
    ],
)
def test_text_that_is_not_json_is_refused_without_being_quoted(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "weft.json"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="it is not JSON") as caught:
        ConnectionFile.read(path)
    assert TOKEN not in str(caught.value)
    # json's own error has the whole document as an attribute.
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("content", [b"[]", b"null", b"1", b'"text"'])
def test_json_that_is_no_object_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "weft.json"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="not a JSON object"):
        ConnectionFile.read(path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("version", None),
        ("version", "1"),
        ("version", True),
        ("version", 0),
        ("cluster_id", None),
        ("cluster_id", "zz" * 16),
        ("cluster_id", "aa" * 15),
        ("cluster_id", "AA" * 16),
        ("token", None),
        ("token", ""),
        ("token", "x" * 15),
        ("token", "x" * 1025),
        ("token", "a token with a space in it"),
        ("token", "a-token-with-a-newline\n"),
        ("token", 12345678901234567890),
        ("addresses", None),
        ("addresses", []),
        ("addresses", "tcp://127.0.0.1:8786"),
        ("addresses", [1]),
        ("addresses", ["tcp://127.0.0.1:8786"] * 65),
        ("addresses", ["127.0.0.1:8786"]),
        ("addresses", ["tcp://127.0.0.1"]),
        ("addresses", ["tcp://127.0.0.1:99999"]),
        ("addresses", ["tcp://:8786"]),
        ("addresses", ["tcp://user@host:1"]),
        ("addresses", ["tcp://host:1/path"]),
        ("addresses", ["http://127.0.0.1:8786"]),
        ("addresses", ["unix://relative/path"]),
        ("addresses", ["unix://"]),
        ("addresses", ["tcp://[::1:8786"]),
        ("certificate_pem", 1),
        ("certificate_pem", "nonsense"),
        ("certificate_pem", CERTIFICATE + KEY),
        ("dashboard", "javascript:alert(1)"),
        ("dashboard", 1),
        ("pid", None),
        ("pid", -1),
        ("pid", True),
        ("pid", 2**40),
        ("host", None),
        ("created", None),
        ("created", "yesterday"),
        ("created", True),
        ("created", -1),
        ("created", float("nan")),
        ("created", float("inf")),
        ("created", 10**400),
    ],
)
def test_each_bad_field_is_refused_by_name(tmp_path: Path, name: str, value: object) -> None:
    path = put(tmp_path / "weft.json", **{name: value})
    with pytest.raises(ConfigError, match=name) as caught:
        ConnectionFile.read(path)
    assert "wrote" in str(caught.value)
    if isinstance(value, str) and len(value) > 9:
        assert value not in str(caught.value)


def test_a_newer_format_is_named_as_such(tmp_path: Path) -> None:
    path = put(tmp_path / "weft.json", version=2, token=None)
    with pytest.raises(ConfigError, match="newer weft"):
        ConnectionFile.read(path)


def test_fields_that_a_newer_version_adds_are_left_alone(tmp_path: Path) -> None:
    path = put(tmp_path / "weft.json", colour="green")
    assert ConnectionFile.read(path).token == TOKEN


JSON = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
FIELDS = [field.name for field in dataclasses.fields(ConnectionFile)]


@given(
    changes=st.dictionaries(
        st.sampled_from(FIELDS),
        JSON | st.lists(JSON, max_size=3) | st.dictionaries(st.text(max_size=5), JSON, max_size=3),
        max_size=4,
    )
)
def test_any_change_is_accepted_or_refused_with_a_config_error(changes: dict[str, object]) -> None:
    content = {**dataclasses.asdict(make()), "addresses": ["unix:///run/weft"], **changes}
    try:
        parsed = ConnectionFile.from_plain(content, "somewhere")
    except ConfigError:
        return
    assert parsed.to_security().token.decode() == content["token"]
    assert list(parsed.addresses) == content["addresses"]


@given(address=st.text() | st.from_regex(r"(tcp|tls|unix)://[^ ]*:[0-9]{0,6}"))
def test_any_address_is_understood_or_refused(address: str) -> None:
    key = address_key(address)
    assert key is None or (key[0] in ("tcp", "tls", "unix") and key[1])


def test_no_repr_shows_the_token() -> None:
    file = make()
    for shown in (repr(file), str(file), f"{file}", repr([file]), repr(file.to_security())):
        assert TOKEN not in shown
        assert "BEGIN" not in shown
    assert "tls://10.0.0.1:8786" in repr(file)


# --- Token files ----------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [TOKEN, TOKEN + "\n", f"  {TOKEN}\r\n"])
def test_a_token_file_holds_one_token(tmp_path: Path, content: str) -> None:
    path = tmp_path / "token"
    path.write_text(content, newline="")
    path.chmod(0o400)
    assert read_token_file(path) == TOKEN


@pytest.mark.parametrize(
    "content", [b"", b"short", b"two tokens-in-one-file here", b"\xff" * 40, b"x" * 5000]
)
def test_a_token_file_with_anything_else_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="token file") as caught:
        read_token_file(path)
    assert "two tokens" not in str(caught.value)


def test_a_token_file_is_checked_like_a_connection_file(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(TOKEN)
    path.chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        read_token_file(path)
    path.chmod(0o600)
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(ConfigError, match="symbolic link"):
        read_token_file(tmp_path / "link")
