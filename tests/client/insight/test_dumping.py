"""`Client.dump_cluster_state`: a file with what a cluster tells about itself."""

from __future__ import annotations

import gzip

import msgpack
import pytest

import weft
from weft.client.insight import dumping

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]


@pytest.fixture(scope="module")
def client():
    with weft.Client(n_workers=1, threads_per_worker=1, processes=False) as client:
        yield client


def rows_of(path):
    with gzip.open(path) as file:
        rows = [*msgpack.Unpacker(file)]
    sections = {}
    for section, value in rows:
        sections.setdefault(section, []).append(value)
    return sections


def test_a_dump_has_the_cluster_its_tasks_and_logs(client, tmp_path):
    future = client.submit(pow, 2, 10, key=("part", 1))
    waiting = client.submit(abs, future, resources={"GPU": 1})
    future.result()
    path = client.dump_cluster_state(tmp_path / "dump")
    assert path == str(tmp_path / "dump.msgpack.gz")
    found = rows_of(path)
    assert {*found} >= {"dump", "cluster", "overview", "workers", "clients", "versions", "tasks"}
    by_key = {task["key"]: task for task in found["tasks"]}
    assert len(by_key) == len(found["tasks"]) == found["task_counts"][0]["n_found"]
    assert by_key[future._state.key]["state"] == "memory"
    assert by_key[waiting.key]["state"] == "no_worker"
    assert any(row["key"] == waiting.key for row in found["story"])
    assert [row["address"] for row in found["workers"]] == [*client.nthreads()]
    assert {row["process"] for row in found["versions"]} >= {"client", "scheduler"}
    assert [*tmp_path.iterdir()] == [tmp_path / "dump.msgpack.gz"]


def test_a_dump_in_yaml_is_read_by_any_reader_of_yaml(client, tmp_path):
    yaml = pytest.importorskip("yaml", reason="PyYAML is missing: pip install pyyaml")
    future = client.submit(abs, -3, key="name with \x7f, \u2028, 'quotes': and \U0001f600")
    future.result()
    path = client.dump_cluster_state(tmp_path / "dump", format="yaml")
    assert path.endswith("dump.yaml")
    with open(path, encoding="utf-8") as file:
        found = yaml.safe_load(file)
    assert future.key in [task["key"] for task in found["tasks"]]


def test_sections_and_fields_can_be_left_out(client, tmp_path):
    future = client.submit(abs, -4)
    future.result()
    path = client.dump_cluster_state(tmp_path / "dump", exclude=["logs", "versions", "story"])
    assert not {"logs", "versions", "story"} & {*rows_of(path)}
    path = client.dump_cluster_state(tmp_path / "dump", exclude=("inputs",))
    assert not [task for task in rows_of(path)["tasks"] if "inputs" in task]


def test_more_tasks_than_the_limit_are_counted(client, tmp_path, monkeypatch):
    monkeypatch.setattr(dumping, "MAX_TASKS", 3)
    futures = client.map(abs, range(-20, -10))
    client.gather(futures)
    found = rows_of(client.dump_cluster_state(tmp_path / "dump"))
    assert len(found["tasks"]) == found["task_counts"][0]["n_listed"] == 3
    assert found["task_counts"][0]["n_found"] >= 10


def test_wrong_arguments_are_refused_and_leave_no_file(client, tmp_path):
    with pytest.raises(weft.NotSupported, match="written by this program"):
        client.dump_cluster_state(tmp_path / "x", write_from_scheduler=True)
    with pytest.raises(weft.NotSupported, match="pass a path"):
        client.dump_cluster_state("s3://bucket/x")
    with pytest.raises(ValueError, match='format= is "msgpack" or "yaml"'):
        client.dump_cluster_state(tmp_path / "x", format="json")
    with pytest.raises(TypeError, match="exclude= has names"):
        client.dump_cluster_state(tmp_path / "x", exclude="logs")
    with pytest.raises(FileNotFoundError):
        client.dump_cluster_state(tmp_path / "nowhere" / "x")
    assert [*tmp_path.iterdir()] == []


async def test_an_asynchronous_client_awaits_it(tmp_path):
    async with weft.Client(asynchronous=True, processes=False, n_workers=1) as client:
        path = await client.dump_cluster_state(tmp_path / "dump")
    assert rows_of(path)["cluster"]
