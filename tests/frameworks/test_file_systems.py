"""Parquet files of data frames, by way of fsspec: local files, memory, an S3 server on loopback.

A file system in memory (`memory://`) belongs to one process. So workers that are processes write
into their own memory, where no other process finds it; a cluster of threads shares it.
"""

from __future__ import annotations

import uuid

import pytest

pytest.importorskip("dask.dataframe", reason="dask is missing: pip install 'weft[test]'")

import dask.dataframe as dd
import fsspec
import pandas as pd
from pandas.testing import assert_frame_equal

import weft

pytestmark = [
    pytest.mark.slow,
    pytest.mark.shares_resources,
    # What these libraries use of each other may be on its way out.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]


@pytest.fixture
def table():
    names = [f"name {i}" for i in range(100)]
    return pd.DataFrame({"i": range(100), "half": [i / 2 for i in range(100)], "name": names})


def round_trip(table, url, **options):
    """Write a table in parts, read it again, and read a part of its columns and rows."""
    frame = dd.from_pandas(table, npartitions=4)
    frame.to_parquet(url, write_index=False, **options)
    again = dd.read_parquet(url, **options)
    assert again.npartitions == 4
    found = again.compute().reset_index(drop=True)
    assert_frame_equal(found, table, check_dtype=False)
    few = dd.read_parquet(url, columns=["half"], filters=[("i", ">=", 90)], **options)
    assert sorted(few.compute().half) == [i / 2 for i in range(90, 100)]
    frame.to_parquet(url, write_index=False, append=True, ignore_divisions=True, **options)
    assert len(dd.read_parquet(url, **options)) == 200
    frame.to_parquet(url, write_index=False, overwrite=True, **options)
    assert len(dd.read_parquet(url, **options)) == 100


def test_local_files(client, table, tmp_path):
    round_trip(table, f"file://{tmp_path}/table", filesystem="fsspec")
    assert len([*tmp_path.glob("table/*.parquet")]) == 4


def test_columns_are_folders_of_a_partitioned_table(client, table, tmp_path):
    frame = dd.from_pandas(table.assign(kind=table.i % 3), npartitions=2)
    frame.to_parquet(str(tmp_path), partition_on=["kind"])
    again = dd.read_parquet(str(tmp_path), filters=[("kind", "==", 1)])
    assert sorted(again.i.compute()) == [*range(1, 100, 3)]


@pytest.fixture
def memory_url():
    url = f"memory://{uuid.uuid4()}"
    yield f"{url}/table"
    fsspec.filesystem("memory").store.clear()


def test_memory_is_shared_by_workers_that_are_threads(table, memory_url):
    with weft.Client(n_workers=2, threads_per_worker=1, processes=False):
        round_trip(table, memory_url)
        assert fsspec.filesystem("memory").exists(memory_url)


def test_memory_of_worker_processes_is_not_found_elsewhere(client, table, memory_url):
    dd.from_pandas(table, npartitions=4).to_parquet(memory_url)
    assert not fsspec.filesystem("memory").find(memory_url)
    with pytest.raises(ValueError, match="No files satisfy"):
        dd.read_parquet(memory_url)


# --- S3 -------------------------------------------------------------------------------------------

INSTALL = "an S3 server is missing: pip install 'weft[s3-test]'"


@pytest.fixture(scope="module")
def s3():
    """The storage options for a server on loopback, with a bucket `tables`."""
    server_module = pytest.importorskip("moto.server", reason=INSTALL)
    s3fs = pytest.importorskip("s3fs", reason=INSTALL)
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    options = {
        "key": "tests",
        "secret": "tests",
        "client_kwargs": {"endpoint_url": f"http://{host}:{port}"},
    }
    s3fs.S3FileSystem(**options).mkdir("tables")
    yield options
    end_file_systems(s3fs.S3FileSystem)
    server.stop()


def end_file_systems(kind):
    """Close what fsspec keeps until the process ends: connections, and an event loop's thread."""
    loop, thread = fsspec.asyn.loop, fsspec.asyn.iothread
    for file_system in kind._cache.values():
        fsspec.asyn.sync(loop[0], file_system._s3creator.__aexit__, None, None, None)
    kind.clear_instance_cache()
    fsspec.asyn.sync(loop[0], loop[0].shutdown_default_executor)
    loop[0].call_soon_threadsafe(loop[0].stop)
    thread[0].join()
    loop[0].close()
    loop[0] = thread[0] = None


def test_a_bucket(client, table, s3):
    round_trip(table, "s3://tables/one", storage_options=s3)
    assert len(fsspec.filesystem("s3", **s3).ls("tables/one")) == 4
