"""The current client, which is used when none is named."""

from __future__ import annotations

import pytest

import weft
from weft.client import Client
from weft.protocol.errors import ClientClosed


def test_a_closed_default_client_gives_its_place_back(scheduler):
    with Client(scheduler) as outer, Client(scheduler) as middle:
        with Client(scheduler), Client(scheduler) as inner:
            assert Client.current() is inner
        assert Client.current() is middle
        with Client(scheduler) as inner:
            middle.close()
            assert Client.current() is inner
        assert Client.current() is outer
    with pytest.raises(ClientClosed):
        Client.current()


def test_a_client_without_references_does_not_become_the_default_again(scheduler):
    Client(scheduler, name="first")
    with pytest.warns(ResourceWarning, match="'first'"):
        second = Client(scheduler)
    with Client(scheduler) as third:
        assert Client.current() is third
    assert Client.current() is second
    second.close()
    with pytest.raises(ClientClosed):
        Client.current()


def test_the_search_for_a_client_where_there_is_none_raises_a_value_error():
    for find in (weft.get_client, weft.default_client, weft.Client.current):
        with pytest.raises(ValueError, match="client"):
            find()


@pytest.mark.parametrize("call", [weft.get_worker, weft.get_current_task, weft.secede])
@pytest.mark.parametrize("kind", [ValueError, RuntimeError])
def test_functions_for_tasks_raise_value_and_runtime_errors_outside_of_one(call, kind):
    with pytest.raises(kind, match="works only in a task"):
        call()
