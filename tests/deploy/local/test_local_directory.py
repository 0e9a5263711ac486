"""The folders of workers of a local cluster, and the warning about a second cluster."""

from __future__ import annotations

import logging
import os
import tempfile

import pytest

import weft

pytestmark = pytest.mark.slow


def places():
    return weft.get_worker().local_directory, tempfile.gettempdir(), os.environ.get("TMPDIR")


def test_worker_processes_keep_their_files_in_the_local_directory(tmp_path):
    parent = tmp_path / "not" / "there yet"
    with weft.Client(n_workers=1, local_directory=parent) as client:
        (made,) = parent.iterdir()
        assert client.submit(places).result() == (str(made),) * 3
        client.submit(tempfile.mkstemp).result()
        assert len([*made.iterdir()]) >= 1
    assert [*parent.iterdir()] == []


def test_workers_in_this_process_get_a_folder_too(tmp_path):
    with weft.Client(n_workers=1, processes=False, local_directory=str(tmp_path)) as client:
        (made,) = tmp_path.iterdir()
        assert client.submit(places).result()[:2] == (str(made), tempfile.gettempdir())
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("processes", [True, False])
def test_a_place_where_no_folder_can_be_is_refused(tmp_path, processes):
    file = tmp_path / "file"
    file.write_text("")
    for place, text in (
        (file, "there is a file of that name"),
        (file / "below", "there is a file of that name"),
        ("/proc/nope", "cannot make a folder in /proc/nope"),
        (5, "5 is not the path of a folder"),
    ):
        with pytest.raises(weft.ConfigError, match=f"local_directory: .*{text}"):
            weft.LocalCluster(n_workers=1, processes=processes, local_directory=place)


def test_a_second_cluster_is_noticed(caplog):
    caplog.set_level(logging.WARNING, logger="weft.cluster")
    options = {"n_workers": 1, "processes": False}
    with weft.LocalCluster(**options, name="one"):
        assert caplog.messages == []
        with weft.LocalCluster(**options, name="two"), weft.LocalCluster(**options, name="three"):
            (message,) = caplog.messages
            assert "two, was started while one is running" in message
    with weft.LocalCluster(**options, name="four"):
        assert len(caplog.messages) == 1


def test_clusters_of_one_process_have_different_names():
    first, second = (weft.LocalCluster(asynchronous=True) for _ in range(2))
    assert first.name != second.name
    assert {name.split("-")[1] for name in (first.name, second.name)} == {str(os.getpid())}


async def test_a_second_asynchronous_cluster_is_noticed(caplog):
    caplog.set_level(logging.WARNING, logger="weft.cluster")
    options = {"n_workers": 1, "processes": False, "asynchronous": True}
    async with weft.LocalCluster(**options, name="one"):
        assert caplog.messages == []
        async with weft.LocalCluster(**options, name="two"):
            (message,) = caplog.messages
            assert "two, was started while one is running" in message
    async with weft.LocalCluster(**options, name="three"):
        assert len(caplog.messages) == 1
