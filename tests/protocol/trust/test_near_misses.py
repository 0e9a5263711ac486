"""Addresses that are nearly right are named, with the one that was probably meant."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import pytest

from weft.protocol.errors import ConfigError
from weft.protocol.trust.connection_file import ConnectionFile
from weft.protocol.trust.finding import NoSchedulerFound, default_path, find, near_miss
from weft.protocol.trust.security import new_token

FILE = ConnectionFile(
    "c" * 32,
    ("tls://node1:9786", "tcp://127.0.0.1:9786"),
    new_token(),
    dashboard="https://node1:8787/",
    pid=1,
    host="elsewhere",
    source="/run/weft/big.json",
)


@pytest.mark.parametrize(
    ("address", "meant"),
    [
        ("tcp://node1:9786", "tls://node1:9786"),
        ("tls://localhost:9786", "tcp://127.0.0.1:9786"),
        ("tcp://node1:8787", "tls://node1:9786"),
        ("node1:8787", "tls://node1:9786"),
        ("https://node1:8787/", "tls://node1:9786"),
        ("9786", "tls://node1:9786"),
        ("1234", "tcp://127.0.0.1:1234"),
        ("8787", "tls://node1:9786"),
        ("big", "tls://node1:9786"),
        ("big:8786", "tls://node1:9786"),
    ],
)
def test_the_address_that_was_meant_is_named(address, meant):
    assert near_miss(address, [FILE]).endswith(f": did you mean {meant}?")


@pytest.mark.parametrize(
    "address",
    [
        "tls://node1:9786",
        "node2:9786",
        "tcp://node2:9786",
        "node1:1",
        "tcp://big:8786",
        "",
        "a:b:1",
    ],
)
def test_an_address_that_resembles_none_gets_no_proposal(address):
    assert near_miss(address, [FILE]) == ""


@pytest.mark.parametrize("address", ["0", "65536", "9" * 5000])
def test_a_number_that_is_no_port_gets_no_address(address):
    assert near_miss(address, []) == f"{address} is a port without a host"


def test_the_url_of_other_pages_is_not_an_address():
    assert near_miss("http://example.org/", []).startswith("http://example.org/ is for pages: ")


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("tcp://node1:9786", "has another scheme: did you mean tls://node1:9786?"),
        ("https://node1:8787/", "is for the pages of a scheduler: did you mean tls://node1:9786?"),
        ("9786", "9786 is a port without a host: did you mean tls://node1:9786?"),
        ("big", "big is the name of a cluster, and not an address: did you mean"),
    ],
)
def test_a_near_miss_is_an_error_of_configuration_and_not_of_the_token(address, words, tmp_path):
    environ = {"HOME": str(tmp_path)}
    FILE.write(default_path("big", environ))
    with pytest.raises(ConfigError) as caught:
        find(None, address, environ)
    assert words in str(caught.value)
    assert "token" not in str(caught.value)
    assert not isinstance(caught.value, NoSchedulerFound)


@pytest.mark.parametrize("is_here", [True, False])
def test_a_tunnel_to_a_scheduler_elsewhere_may_have_any_address(is_here, tmp_path: Path):
    host = socket.gethostname() if is_here else "elsewhere"
    file = ConnectionFile("c" * 32, ("tls://node1:8786",), new_token(), pid=1, host=host)
    path = tmp_path / "c.json"
    file.write(path)
    if is_here:
        with pytest.raises(ConfigError, match="did you mean tls://node1:8786"):
            find(str(path), "tcp://node1:8786", {})
    else:
        assert find(str(path), "tcp://node1:8786", {}).addresses == ("tcp://node1:8786",)


@pytest.mark.parametrize("address", ["vm", "vm:8786", "tls://vm:8786"])
@pytest.mark.parametrize("is_given", [True, False])
def test_a_file_may_have_the_name_of_its_host(address, is_given, tmp_path: Path):
    environ = {"HOME": str(tmp_path)}
    this = {"pid": os.getpid(), "host": socket.gethostname(), "created": time.time()}
    file = ConnectionFile("c" * 32, ("tls://vm:8786",), new_token(), **this)
    path = default_path("vm", environ)
    file.write(path)
    found = find(str(path) if is_given else None, address, environ)
    assert found.addresses == ("tls://vm:8786",)
