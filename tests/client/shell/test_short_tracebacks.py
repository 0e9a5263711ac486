"""The frames of weft that tracebacks leave out."""

from __future__ import annotations

import asyncio
import json
import traceback

import pytest

import weft
from weft.client.shell.short_tracebacks import short_refusals, short_tracebacks
from weft.protocol.errors import ConfigError, InternalError


def functions(error: BaseException) -> list[str]:
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)]


def refused(_: object) -> object:
    raise ConfigError("it is wrong", "setting")


def test_frames_below_the_last_one_of_the_user_are_cut():
    with pytest.raises(ConfigError) as caught, short_tracebacks:
        json.loads("[1.5]", parse_float=refused)
    assert functions(caught.value)[-1] == "refused"

    def through_the_library() -> None:
        with short_tracebacks:
            asyncio.run(asyncio.wait_for(interrupted(), 60))

    async def interrupted() -> None:
        json.loads("")

    with pytest.raises(ValueError, match="Expecting value") as error:
        through_the_library()
    assert len(functions(error.value)) > 4, "an error that weft has not raised stays whole"
    with pytest.raises(ValueError, match="Expecting value") as error, short_refusals:
        json.loads("")
    assert functions(error.value)[1:] == []


def test_a_bug_keeps_its_frames():
    def broken() -> None:
        raise InternalError("a state contradicts itself")

    with pytest.raises(InternalError) as caught, short_tracebacks:
        broken()
    assert functions(caught.value)[-1] == "broken"


@pytest.mark.parametrize(
    "options",
    [
        {"n_workers": -1},
        {"n_workers": 1.5},
        {"memory_limit": "lots"},
        {"n_worker": 1},
        {"timeout": "soon"},
        {"address": 3},
        {"address": "tcp://127.0.0.1:1", "timeout": 0.1},
        {"connection_file": "missing.json", "timeout": 0.1},
        {"recovery_memory": "-1"},
    ],
)
def test_a_setting_that_is_refused_has_one_frame_of_weft(options, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((weft.WeftError, TypeError)) as caught:
        weft.Client(**options)
    assert functions(caught.value)[1:] == ["__init__"]


def test_a_cluster_refuses_with_few_frames():
    with weft.LocalCluster(n_workers=0, processes=False) as cluster:
        for call in (
            lambda: cluster.scale(-1),
            lambda: cluster.adapt(3, 1),
            lambda: cluster.adapt(1, interval="often"),
        ):
            with pytest.raises(weft.WeftError) as caught:
                call()
            assert len(functions(caught.value)[2:]) == 1
        with weft.Client(cluster) as client, pytest.raises(weft.WeftError) as caught:
            client.nthreads("nobody")
        assert functions(caught.value)[1:] == ["nthreads"]
    with pytest.raises(ConfigError) as caught:
        weft.LocalCluster(n_workers=-1)
    assert functions(caught.value)[1:] == ["__init__"]
