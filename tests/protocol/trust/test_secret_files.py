"""Secrets that a container's runtime mounts: refused unless they are trusted by name."""

from __future__ import annotations

import pytest

from weft.protocol.errors import ConfigError
from weft.protocol.trust.secret_files import TRUST_VARIABLE, read_token_file
from weft.protocol.trust.security import new_token


@pytest.fixture
def mounted(tmp_path):
    """A token as Kubernetes mounts it: a link to a file that others can read."""
    token = new_token()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "token").write_text(token)
    (tmp_path / "data" / "token").chmod(0o644)
    (tmp_path / "token").symlink_to("data/token")
    return tmp_path / "token", token


def test_a_mounted_secret_is_refused_by_default(mounted, monkeypatch):
    monkeypatch.delenv(TRUST_VARIABLE, raising=False)
    path, _ = mounted
    with pytest.raises(ConfigError, match="symbolic link"):
        read_token_file(path)
    with pytest.raises(ConfigError, match="can be used by others"):
        read_token_file(path.resolve())


def test_a_mounted_secret_can_be_trusted(mounted, monkeypatch):
    monkeypatch.setenv(TRUST_VARIABLE, "1")
    path, token = mounted
    assert read_token_file(path) == token


def test_a_file_that_others_can_write_is_never_trusted(mounted, monkeypatch):
    monkeypatch.setenv(TRUST_VARIABLE, "1")
    path, _ = mounted
    path.resolve().chmod(0o666)
    with pytest.raises(ConfigError, match="can be written by others"):
        read_token_file(path)
