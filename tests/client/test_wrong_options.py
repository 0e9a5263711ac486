"""Options of a wrong type or beyond a limit are errors that explain the fault."""

from __future__ import annotations

import functools
import re

import pytest

import weft
from weft.deploy.local.arguments import parse_dashboard_address
from weft.protocol.trust.addresses import with_port
from weft.protocol.wire.address import parse_address


@pytest.mark.parametrize("number", [1.5, "2", b"2", [1]])
def test_a_thread_pool_of_no_whole_number_is_a_type_error(number):
    with pytest.raises(TypeError, match=r"max_workers is a number of threads, an int, but .* is a"):
        weft.ThreadPool(number)


def test_a_client_whose_name_is_no_text_is_a_type_error():
    with pytest.raises(TypeError, match=r"name= is a text, and 5 is of type int"):
        weft.Client(name=5, n_workers=0)


def test_asynchronous_is_true_or_false():
    with pytest.raises(TypeError, match=r"asynchronous= is True or False, not 'yes'"):
        weft.Client(asynchronous="yes")


def test_a_reason_that_is_no_text_cancels_nothing(client):
    future = client.submit(abs, -1)
    with pytest.raises(TypeError, match=r"reason= is a text, not 3"):
        future.cancel(reason=3)
    assert future.result(60) == 1


@pytest.mark.parametrize("address", [["127.0.0.1:8787"], 8787.0, -1, 70000])
def test_the_error_of_an_address_of_pages_shows_how_one_is_written(address):
    with pytest.raises(weft.ConfigError, match=r"dashboard_address: .* write for example"):
        weft.LocalCluster(n_workers=0, dashboard_address=address)


@pytest.mark.parametrize("address", [8787, "8787", ":8787", "127.0.0.1:8787"])
def test_a_port_alone_is_an_address_of_pages(address):
    assert parse_dashboard_address(address, processes=True) == ("127.0.0.1", 8787)


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


@pytest.mark.parametrize("option", ["key", "workers", "resources"])
def test_an_option_that_is_meant_for_the_function_is_refused_with_the_remedy(client, option):
    words = f"{option}= is an option of submit and map: .* use functools.partial"
    with pytest.raises(TypeError, match=words):
        client.submit(sorted, [3, 1, 2], **{option: len})
    with pytest.raises(TypeError, match=words):
        client.map(sorted, [[3, 1, 2]], **{option: len})


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("retry", "the option retries= of submit and map?"),
        ("worker", "the option workers= of submit and map?"),
        ("chunksize", "the option batch_size= of map?"),
        ("timeouts", "the option timeout= of submit and map?"),
        ("zzz", None),
    ],
)
def test_the_error_of_a_function_that_refuses_an_option_s_name_proposes_the_option(name, note):
    with weft.Client(processes=False, n_workers=1, set_as_default=False) as client:

        def takes_all_names(x, **names):
            return Counter().count(x, **names)

        with pytest.raises(TypeError) as caught:
            client.submit(takes_all_names, 1, **{name: 2}).result(20)
        notes = [n for n in caught.value.__notes__ if "did you mean" in n]
        assert notes == ([f"weft: did you mean {note}"] if note else [])
        hint = re.escape(f"; did you mean {note}" if note else "")
        refused = rf"\(\) got an unexpected keyword argument '{name}'{hint}$"
        bound = functools.partial(Counter().count, end=3)
        for function in (lambda x: x, sorted, Counter().count, bound):
            with pytest.raises(TypeError, match=refused):
                client.submit(function, 1, **{name: 2})
            with pytest.raises(TypeError, match=refused):
                client.map(function, [1], **{name: 2})


class Counter:
    def count(self, n, *, end=0):
        return n + end


def test_a_name_like_that_of_a_parameter_is_proposed(client):
    with pytest.raises(TypeError, match=r"^Counter.count\(\) got .* 'ends'; did you mean end=\?$"):
        client.submit(Counter().count, 1, ends=2)
    with pytest.raises(TypeError, match=r"^gather\(\) got .* 'error'; did you mean errors=\?$"):
        client.gather([], error="skip")
    with pytest.raises(TypeError, match=r"^gather\(\) got .* 'zzz'$"):
        client.gather([], zzz="skip")


def test_functions_take_the_keywords_of_their_signature(client):
    for function in (Counter().count, functools.partial(Counter().count, end=2)):
        assert client.submit(function, 1, end=3).result(20) == 4
        assert client.gather(client.map(function, [1, 2], end=3)) == [4, 5]
    assert client.submit(sorted, [1, 3, 2], reverse=True).result(20) == [3, 2, 1]
    assert client.submit(dict, a=1).result(20) == {"a": 1}

    def of_positions(x, /, **names):
        return x, names

    assert client.submit(of_positions, 1, x=2).result(20) == (1, {"x": 2})
    with pytest.raises(TypeError, match="unexpected keyword argument 'x'"):
        client.submit(lambda x, /: x, 1, x=2)


def test_processes_is_true_or_false():
    with pytest.raises(weft.ConfigError, match="processes: 'no' is neither True nor False"):
        weft.LocalCluster(processes="no")


@pytest.mark.parametrize(
    ("address", "completed"),
    [
        ("localhost", "localhost:8786"),
        ("127.0.0.1", "127.0.0.1:8786"),
        ("[::1]", "[::1]:8786"),
        ("tcp://localhost", "tcp://localhost:8786"),
        ("tls://host.example.org", "tls://host.example.org:8786"),
        ("localhost:1", "localhost:1"),
        ("tcp://127.0.0.1:0", "tcp://127.0.0.1:0"),
        ("unix:///tmp/s", "unix:///tmp/s"),
        ("cluster.json", "cluster.json"),
        ("./folder/file", "./folder/file"),
        ("::1", "::1"),
        ("", ""),
        ("nothing://host", "nothing://host"),
    ],
)
def test_an_address_without_a_port_gets_that_of_the_scheduler(address, completed):
    assert with_port(address) == completed


def test_the_port_of_an_address_may_be_left_out():
    with pytest.raises(weft.ConnectTimeout, match=r"at 127\.0\.0\.9:8786; start one there"):
        weft.Client("127.0.0.9", timeout=0.01)


def test_a_value_that_equals_its_own_key_is_explained():
    with pytest.raises(weft.GraphCycle, match="19 needs 19; a value that equals a key is a refer"):
        weft.get({19: (abs, 19)}, 19)
