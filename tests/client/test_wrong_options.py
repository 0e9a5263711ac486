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
