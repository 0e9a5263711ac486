"""`weft.print` and `weft.warn`, on a real cluster."""

from __future__ import annotations

import sys
import warnings

import pytest

import weft
from weft import Client

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]


def prints(x):
    weft.print("one", x, sep="-", end="!\n")
    print("not shown")
    weft.print("two", file=sys.stderr)
    return x


class OwnWarning(UserWarning):
    """A category that other processes do not have."""


def warns():
    weft.warn("first", DeprecationWarning)
    weft.warn(OwnWarning("second"))


def test_a_script_shows_what_its_tasks_print_for_all(cluster, capfd):
    # Once in each program, whatever the number of its clients.
    with (
        Client(cluster, forward_output=False, set_as_default=False),
        Client(cluster) as client,
        Client(cluster, set_as_default=False),
    ):
        assert client.submit(prints, 1).result(timeout=60) == 1
    shown = capfd.readouterr()
    assert [line.split(") ")[1] for line in shown.out.splitlines() if ") " in line] == ["one-1!"]
    assert [line.split(") ")[1] for line in shown.err.splitlines() if ") " in line] == ["two"]


def test_a_client_that_forwards_output_shows_it_once(cluster, capfd):
    with Client(cluster, forward_output=True) as client:
        client.submit(prints, 2).result(timeout=60)
    lines = [line.split(") ")[1] for line in capfd.readouterr().out.splitlines() if ") " in line]
    assert lines == ["one-2!", "not shown"]


async def test_an_asynchronous_client_shows_it_too(cluster, capfd):
    async with Client(cluster, asynchronous=True, set_as_default=False) as client:
        assert await client.submit(prints, 3) == 3
    lines = [line.split(") ")[1] for line in capfd.readouterr().out.splitlines() if ") " in line]
    assert lines == ["one-3!"]


def test_warnings_of_tasks_follow_the_filters_of_the_program(cluster):
    with warnings.catch_warnings(record=True) as caught, Client(cluster) as client:
        warnings.simplefilter("always")
        client.submit(warns).result(timeout=60)
        client.close()
    assert [(w.category, str(w.message)) for w in caught] == [
        (DeprecationWarning, "first"),
        (UserWarning, "OwnWarning: second"),
    ]


def test_outside_of_tasks_they_are_those_of_python(capsys):
    weft.print("here", 5, sep=":", end="")
    assert capsys.readouterr().out == "here:5"
    with pytest.warns(FutureWarning, match="soon") as caught:
        weft.warn("soon", FutureWarning)
    assert caught[0].filename == __file__
    with pytest.raises(TypeError, match="category= is a class of warnings"):
        weft.warn("soon", int)
    with pytest.raises(TypeError):
        weft.print("a", sep=5)
