"""Environment variables of the worker processes of a `LocalCluster`."""

from __future__ import annotations

import os

import pytest

import weft


@pytest.mark.slow
def test_workers_have_the_variables_from_their_start_also_the_ones_that_weft_sets():
    given = {"WEFT_TEST_WORD": "a b", "OMP_NUM_THREADS": 3}
    with weft.Client(n_workers=2, threads_per_worker=1, env=given) as client:
        found = client.run(lambda: [os.environ.get(name) for name in given])
    assert list(found.values()) == [["a b", "3"]] * 2
    assert "WEFT_TEST_WORD" not in os.environ


@pytest.mark.parametrize(
    ("env", "text"),
    [
        ("A=1", "env: a mapping of names to texts, not 'A=1'"),
        ({1: "a"}, "1 is no name of an environment variable"),
        ({"": "a"}, "'' is no name"),
        ({"A=B": "a"}, "'A=B' is no name"),
        ({"A": None}, "the value of A is a text or a number, not None"),
        ({"A": True}, "the value of A is a text or a number, not True"),
        ({"A": "\0"}, "the value of A has a zero byte"),
    ],
)
def test_wrong_variables_are_refused(env, text):
    with pytest.raises(weft.ConfigError, match=text):
        weft.LocalCluster(env=env)


def test_workers_without_processes_have_no_variables_of_their_own():
    with pytest.raises(weft.ConfigError, match=r"env: it needs processes=True.*os\.environ"):
        weft.LocalCluster(processes=False, env={"A": "1"})
    with weft.LocalCluster(n_workers=0, processes=False, env={}):
        pass
