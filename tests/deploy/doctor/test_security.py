"""`weft doctor --security`: the defaults are as documented, and what weakens them is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.deploy.doctor.security import ALWAYS, default_settings, list_settings, settings_of
from weft.protocol.trust.connection_file import ConnectionFile
from weft.protocol.trust.security import generate_certificate, new_token


def environ(tmp_path: Path, **extra: str) -> dict[str, str]:
    return {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state"), **extra}


def test_the_defaults_are_closed(tmp_path):
    found = {setting.name: setting for setting in default_settings(environ(tmp_path))}
    assert found["default address"].value.startswith("tcp://127.0.0.1:8786")
    assert found["default pages"].value.startswith("http://127.0.0.1:8787")
    assert "TLS 1.3" in found["beyond loopback"].value
    assert "not set: refused" in found["mounted secrets"].value
    assert not any(setting.concern for setting in found.values())
    assert not any(setting.concern for setting in ALWAYS)
    assert list(tmp_path.iterdir()) == []


def test_settings_that_weaken_the_defaults_are_named(tmp_path):
    (tmp_path / ".weft" / "run").mkdir(parents=True)
    (tmp_path / ".weft" / "run").chmod(0o755)
    env = environ(tmp_path, WEFT_TRUST_MOUNTED_SECRETS="1", WEFT_TOKEN_FILE="/a/token")
    found = {setting.name: setting for setting in default_settings(env)}
    assert "containers" in found["mounted secrets"].concern
    assert "chmod go-rwx" in found["run directory"].concern
    assert found["WEFT_TOKEN_FILE"].value == "/a/token"


@pytest.mark.parametrize(
    ("address", "encryption", "concern"),
    [
        ("tcp://127.0.0.1:1", "none: this machine only", False),
        ("unix:///s", "none: a socket of this machine", False),
        ("tls://10.0.0.1:1", "TLS 1.3", False),
        ("tcp://10.0.0.1:1", "none", True),
    ],
)
def test_an_unencrypted_address_beyond_this_machine_is_a_concern(address, encryption, concern):
    file = ConnectionFile("", (address,), new_token(), source="/f.json")
    found = {setting.name: setting for setting in settings_of(file)}
    assert found["encryption"].value == encryption
    assert bool(found["encryption"].concern) is concern


def test_no_setting_shows_the_token_and_the_certificate_is_named_by_its_hash():
    certificate, _ = generate_certificate(b"c" * 16)
    token = new_token()
    address, pages = ("tls://10.0.0.1:1",), "http://10.0.0.1:8787/"
    file = ConnectionFile("", address, token, certificate, pages, source="/f.json")
    text = list_settings(settings_of(file))
    assert token not in text
    assert "sha256:" in text
    assert "address of the pages" in text
    assert "in the clear" in text
