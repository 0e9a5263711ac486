"""Options of a wrong type or beyond a limit are errors that explain the fault."""

from __future__ import annotations

import pytest

import weft
from weft.protocol.wire.address import parse_address


@pytest.mark.parametrize("number", [1.5, "2", b"2", [1]])
def test_a_thread_pool_of_no_whole_number_is_a_type_error(number):
    with pytest.raises(TypeError, match=r"max_workers is a number of threads, an int, and .* is a"):
        weft.ThreadPool(number)


def test_a_cluster_whose_name_is_no_text_is_a_type_error():
    with pytest.raises(TypeError, match=r"name= is a text, and 5 is of type int"):
        weft.LocalCluster(name=5)


@pytest.mark.parametrize("port", ["65536", "99999", "9" * 5000])
def test_the_error_of_a_port_that_is_too_large_names_the_limit(port):
    with pytest.raises(weft.ConfigError, match=r"port is too large, the largest is 65535"):
        parse_address(f"tcp://127.0.0.1:{port}")


def test_a_closed_client_is_not_entered_again():
    client = weft.Client(processes=False, n_workers=1, set_as_default=False)
    with client:
        assert client.submit(abs, -1).result() == 1
    with pytest.raises(weft.ClientClosed), client:
        pass


def test_a_client_in_the_place_of_an_address_is_a_type_error():
    options = {"processes": False, "n_workers": 1, "set_as_default": False}
    with (
        weft.Client(**options) as client,
        pytest.raises(TypeError, match=r"a cluster with .*, not Client; client\.cluster is"),
    ):
        weft.Client(client)


def test_the_error_of_a_cluster_s_options_names_the_variable_that_rules_them_out(monkeypatch):
    monkeypatch.setenv("WEFT_CONNECTION_FILE", "cluster.json")
    with pytest.raises(TypeError, match=r"a running one, because \$WEFT_CONNECTION_FILE is set"):
        weft.Client(n_workers=2)
    with pytest.raises(TypeError, match=r"connects to a running one$"):
        weft.Client("tcp://127.0.0.1:1", n_workers=2)
