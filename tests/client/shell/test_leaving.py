"""Clients that are dropped and never closed."""

from __future__ import annotations

import gc
import warnings

import pytest

from weft.client import Client
from weft.protocol.errors import ClientClosed

DROPPED = r"the client '.*' was deleted and never closed"


def test_a_dropped_client_leaves_with_a_warning(scheduler, wait_until):
    client = Client(scheduler, set_as_default=False)
    engine = client._engine
    assert client.submit(abs, -1).result(20) == 1
    with pytest.warns(ResourceWarning, match=DROPPED):
        del client
    # Its thread and its connection have ended too, or the test would fail because of them.
    wait_until(lambda: engine.is_closed)


def test_a_client_that_the_collector_finds_leaves_with_a_warning(scheduler, wait_until):
    client = Client(scheduler, set_as_default=False)
    client.me, engine = client, client._engine
    with pytest.warns(ResourceWarning, match=DROPPED):  # noqa: PT031
        del client
        gc.collect()
    wait_until(lambda: engine.is_closed)


def test_a_warning_that_is_an_error_changes_nothing(scheduler, wait_until, monkeypatch):
    raised = []
    monkeypatch.setattr("sys.unraisablehook", raised.append)
    monkeypatch.setattr("sys.excepthook", lambda *error: raised.append(error))
    client = Client(scheduler, set_as_default=False)
    engine = client._engine
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del client
    assert len(raised) == 1
    wait_until(lambda: engine.is_closed)


def test_futures_of_a_dropped_client_keep_its_engine(scheduler, wait_until):
    scheduler.is_holding = True
    client = Client(scheduler, set_as_default=False)
    engine, future = client._engine, client.submit(abs, -1)
    with pytest.warns(ResourceWarning, match=DROPPED):
        del client
    scheduler.go_on()
    assert future.result(20) == 1
    assert future.client is None
    assert not engine.is_closed
    del future
    wait_until(lambda: engine.is_closed)


def test_a_closed_client_is_dropped_in_silence(scheduler):
    client = Client(scheduler)
    client.close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del client
        gc.collect()


def test_the_default_client_lives_until_another_takes_its_place(scheduler, wait_until):
    Client(scheduler, name="first")
    gc.collect()
    first = Client.current()
    assert (first.name, first.status) == ("first", "running")
    assert first.submit(abs, -1).result(20) == 1
    engine = first._engine
    del first
    with pytest.warns(ResourceWarning, match="'first'"):
        Client(scheduler, name="second")
    wait_until(lambda: engine.is_closed)
    assert Client.current().name == "second"
    Client.current().close()
    with pytest.raises(ClientClosed, match="make one first"):
        Client.current()


def test_with_several_clients_and_no_default_the_current_one_must_be_named(scheduler):
    with (
        Client(scheduler, set_as_default=False) as one,
        Client(scheduler, set_as_default=False),
    ):
        with pytest.raises(ClientClosed, match="2 clients are open, and none"):
            Client.current()
        with one.as_current():
            assert Client.current() is one


async def test_an_asynchronous_client_leaves_too(scheduler):
    client = await Client(scheduler, asynchronous=True, set_as_default=False)
    engine = client._engine
    assert await client.submit(abs, -1) == 1
    with pytest.warns(ResourceWarning, match=DROPPED):
        del client
    await engine.link.closed.wait()
    assert engine.is_closed


def test_a_client_whose_loop_has_ended_has_nothing_to_give_back(scheduler):
    client = Client(scheduler, set_as_default=False)
    client.close()
    calls = []
    client._engine.when_unused(lambda: calls.append(1))
    assert calls == []
