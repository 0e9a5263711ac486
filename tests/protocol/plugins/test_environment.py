"""`Environ`: the variables of several plugins that set the same names."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from weft.protocol.plugins.environment import Environ

NAME = "WEFT_TEST_SHARED"


def for_workers(value):
    plugin = Environ({NAME: value})
    return plugin.setup, plugin.teardown, SimpleNamespace(env=os.environ)


def for_supervisors(value):
    plugin = Environ({NAME: value}, restart=True).for_supervisors()
    return plugin.setup, plugin.teardown, None


@pytest.mark.parametrize("before", [None, "before"])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("make", [for_workers, for_supervisors])
def test_variables_are_those_of_the_plugins_that_are_left(monkeypatch, make, order, before):
    monkeypatch.delenv(NAME, raising=False)
    (set_one, end_one, context), (set_two, end_two, _) = make("1"), make("2")
    context = context or SimpleNamespace(env={})
    if before is not None:
        monkeypatch.setenv(NAME, before)
        context.env[NAME] = before
    set_one(context)
    set_two(context)
    assert context.env[NAME] == "2"
    ends = [end_one, end_two]
    ends[order[0]](context)
    assert context.env[NAME] == ("2", "1")[order[0]]
    ends[order[1]](context)
    assert context.env.get(NAME) == before
