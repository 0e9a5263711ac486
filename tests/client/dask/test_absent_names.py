"""Names of dask that weft does not have are refused with advice, and look absent."""

from __future__ import annotations

import concurrent.futures
import copy
import inspect
import pickle
import re

import pytest

import weft
from weft.client import Client, Future
from weft.client.calls.call_options import _HARMLESS
from weft.client.dask import absent_names
from weft.deploy.local.cluster import LocalCluster

TABLES = absent_names.ABSENT


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(n_workers=0, processes=False) as cluster:
        yield cluster


def test_nothing_that_is_there_is_listed_as_absent(client, cluster):
    future = client.submit(abs, -1)
    owners = [(Client, "Client"), (client, "Client"), (Future, "Future"), (future, "Future")]
    owners += [(weft.Queue, "Queue"), (weft.Queue("absent", client), "Queue")]
    owners += [(weft.Lock("absent", client), "Lock"), (weft.Event("absent", client), "Event")]
    owners += [(weft.Variable("absent", client), "Variable")]
    owners += [(weft.ActorFuture, "ActorFuture")]
    owners += [(LocalCluster, "LocalCluster"), (cluster, "LocalCluster")]
    owners += [(weft, "weft"), (weft, "Ray")]
    for owner, name in owners:
        for absentee in TABLES[name]:
            assert not hasattr(owner, absentee), absentee
            assert absentee not in dir(owner) or isinstance(owner, type) or absentee == "from_name"
    cluster_options = absent_names.options_of(LocalCluster)
    assert "n_workers" in cluster_options
    assert "others" not in cluster_options
    assert not {*cluster_options} & TABLES["LocalCluster()"].keys()
    assert not {*absent_names.options_of(Client)} & TABLES["Client()"].keys()


@pytest.mark.parametrize("name", TABLES)
def test_each_piece_of_advice_can_follow_a_colon_and_names_what_is_there(name):
    for absentee, instead in TABLES[name].items():
        assert instead
        assert not instead.endswith(".")
        assert not instead[0].isupper(), absentee
        for owner, attribute in re.findall(r"`(weft|client)\.(\w+)", instead):
            assert hasattr({"weft": weft, "client": Client}[owner], attribute), instead


def test_the_error_of_a_missing_method_gives_advice(client):
    with pytest.raises(AttributeError) as caught:
        client.write_scheduler_file("x.json")
    assert str(caught.value).startswith(
        "weft has no Client.write_scheduler_file: `weft scheduler --connection-file"
    )
    with pytest.raises(AttributeError, match=r"no Future\.running: .*`status`"):
        client.submit(abs, -1).running()
    with pytest.raises(AttributeError, match=r"no Queue\.get_nowait: .*timeout=0"):
        weft.Queue("absent", client).get_nowait()
    with pytest.raises(AttributeError, match=r"no Lock\.get_value: .*`locked\(\)`"):
        weft.Lock("absent", client).get_value()
    with pytest.raises(AttributeError, match=r"no Variable\.close: .*`delete\(\)`"):
        weft.Variable("absent", client).close()
    with pytest.raises(AttributeError, match=r"no Event\.close: .*`clear\(\)`"):
        weft.Event("absent", client).close()
    with pytest.raises(AttributeError, match=r"no get_task_metadata: .*get_task_stream"):
        weft.get_task_metadata
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        client.nonsense
    with pytest.raises(AttributeError, match="module 'weft' has no attribute 'nonsense'"):
        weft.nonsense


@pytest.mark.parametrize("name", ["get_task_metadata", "Pub", "remote"])
def test_the_import_of_an_absent_name_gives_the_advice_of_its_attribute(name):
    with pytest.raises(AttributeError) as of_attribute:
        getattr(weft, name)
    with pytest.raises(ImportError) as of_import:
        exec(f"from weft import {name}", {})
    assert str(of_import.value) == str(of_attribute.value)
    with pytest.raises(ImportError, match="cannot import name 'nonsense'"):
        exec("from weft import nonsense", {})


def test_the_word_of_ray_for_a_result_gets_advice(client):
    with pytest.raises(TypeError, match=r"client\.gather\(futures\)"):
        weft.get(client.submit(abs, -1))
    with pytest.raises(AttributeError, match=r"no ObjectRef: it is called `weft\.Future`"):
        weft.ObjectRef


@pytest.mark.parametrize("wait", [concurrent.futures.wait, concurrent.futures.as_completed])
def test_the_standard_library_s_wait_gets_advice_for_these_futures(client, wait):
    with pytest.raises(AttributeError, match=r"use weft\.wait and weft\.as_completed"):
        list(wait([client.submit(abs, -1)]))


def test_python_still_suggests_the_right_name_for_a_misspelt_one(client):
    with pytest.raises(AttributeError) as caught:
        client.gahter([])
    assert (caught.value.name, caught.value.obj) == ("gahter", client)


def test_the_error_of_an_unknown_option_gives_advice():
    with pytest.raises(TypeError, match="Client has no option 'nthreads'; it is called `thr"):
        Client(nthreads=2)
    with pytest.raises(TypeError, match="LocalCluster has no option 'scheduler_port'; `weft sch"):
        LocalCluster(scheduler_port=8786)
    with pytest.raises(TypeError, match=r"LocalCluster has no option 'n_worker'; .*'n_workers'"):
        LocalCluster(n_worker=1)
    with pytest.raises(TypeError, match=r"Client has no option 'qqqq'; see help\(weft.Client\)"):
        Client(qqqq=1)


def test_the_error_of_an_absent_option_of_a_call_gives_advice(client):
    assert TABLES["submit()"].keys() >= _HARMLESS.keys()
    with pytest.raises(TypeError, match="actors= is not supported by weft: for a graph: make"):
        client.get({}, [], actors=True)
    with pytest.raises(TypeError, match="leave '5 s' out: use `priority=`"):
        client.submit(abs, -1, fifo_timeout="5 s")


def described(num_returns=0):
    return num_returns


class Described:
    def __init__(self, max_restarts=0):
        self.n = max_restarts


#: Without those that the two take themselves.
OF_RAY = sorted(TABLES["Ray()"].keys() - {"num_returns", "max_restarts"})


@pytest.mark.parametrize("name", OF_RAY)
def test_an_option_of_ray_is_refused_with_advice_for_tasks_and_for_actors(client, name):
    advice = re.escape(TABLES["Ray()"][name])
    with pytest.raises(TypeError, match=rf"^described has no parameter '{name}': {advice}$"):
        client.submit(described, **{name: 1})
    with pytest.raises(TypeError, match=rf"^Described has no parameter '{name}': {advice}$"):
        client.submit(Described, actor=True, **{name: 1})


def test_a_keyword_of_the_function_may_have_the_name_of_an_option_of_ray():
    with weft.Client(processes=False, n_workers=1, set_as_default=False) as client:
        assert client.submit(described, num_returns=3).result(60) == 3
        assert client.submit(Described, max_restarts=4, actor=True).result(60).n == 4
        assert client.submit(dict, runtime_env=5).result(60) == {"runtime_env": 5}


def test_protocols_that_look_for_attributes_are_not_disturbed(client, cluster):
    future = client.submit(abs, -1)
    for thing in (client, cluster, future):
        for name in ("__deepcopy__", "__array__", "_ipython_display_", "_repr_mimebundle_"):
            assert not hasattr(thing, name)
        inspect.getmembers(thing)
        assert repr(thing)
    assert not hasattr(Client.__new__(Client), "_engine")  # half made: no recursion
    assert not hasattr(LocalCluster.__new__(LocalCluster), "status")
    assert copy.copy(future).key == pickle.loads(pickle.dumps(future)).key == future.key
    with pytest.raises(TypeError, match="a client cannot be pickled"):
        copy.deepcopy(client)
    help_text = inspect.getdoc(vars(Future)["running"])
    assert help_text.startswith("weft has no Future.running")
