"""Datasets and metadata as users call them, on a real scheduler."""

from __future__ import annotations

import asyncio

import pytest

import weft
from weft import Client, DatasetExists, DatasetNotFound
from weft.protocol.errors import ClientClosed, SerializationError, TooLarge
from weft.protocol.wire.message import MAX_FACTS

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]


@pytest.fixture
def client(cluster):
    with Client(cluster) as client:
        yield client
        for name in client.list_datasets():
            client.unpublish_dataset(name)


def from_a_task(name):
    return sum(weft.get_client().gather(weft.get_client().get_dataset(name)))


def test_a_dataset_outlives_the_client_that_has_published_it(cluster, client):
    with Client(cluster, set_as_default=False) as other:
        other.publish_dataset(other.map(abs, [-1, -2]), name="numbers")
        other.publish_dataset({"one": 1}, two=2)
    assert client.list_datasets() == ("numbers", "one", "two")
    assert client.gather(client.get_dataset("numbers")) == [1, 2]
    assert client.submit(from_a_task, "numbers").result(timeout=60) == 3
    client.unpublish_dataset(["one", "two"])
    assert client.list_datasets() == ("numbers",)


def test_a_dataset_is_replaced_only_on_request(client):
    client.publish_dataset(1, name="x")
    with pytest.raises(DatasetExists, match=r"there is a dataset 'x' already; .*override=True"):
        client.publish_dataset(2, name="x")
    assert client.get_dataset("x") == 1
    client.publish_dataset(1, 2, name="x", override=True)
    assert client.get_dataset("x") == (1, 2)


def test_datasets_are_a_mapping_too(client):
    datasets = client.datasets
    datasets["a"] = [1]
    assert "a" in datasets
    assert dict(datasets) == {"a": [1]}
    with pytest.raises(KeyError, match="there is no dataset 'b'"):
        datasets["b"]
    del datasets["a"]
    assert len(datasets) == 0


@pytest.mark.parametrize(
    "name",
    [
        *(8, -1, 9.5, float("inf"), 10**30),
        *(("a", 0), (8,), (("x", 1.5), None)),
        *("8", "(8)", "((8))", "('a', 0)", "(inf)", "(-)", "(08)", "a\nb", "("),
    ],
)
def test_names_of_datasets_are_text_numbers_and_tuples(client, name):
    client.publish_dataset(1, name=name)
    assert client.list_datasets() == (name,)
    assert type(client.list_datasets()[0]) is type(name)
    assert client.get_dataset(name) == 1
    assert name in client.datasets
    with pytest.raises(DatasetExists):
        client.publish_dataset({name: 2})
    client.unpublish_dataset(name)
    assert client.list_datasets() == ()


def test_different_names_of_datasets_have_different_texts(client):
    names = [8, "8", "(8)", "((8))", (8,), "(8,)", 8.0, "(8.0)"]
    for i, name in enumerate(names):
        client.publish_dataset(i, name=name)
    assert [client.get_dataset(name) for name in names] == [*range(len(names))]
    client.unpublish_dataset(names)
    assert client.list_datasets() == ()


@pytest.mark.parametrize("name", ["", "n" * 1025, ("n" * 1025,), "\udcff", ("a", object()), True])
def test_a_wrong_name_of_a_dataset_is_refused(client, name):
    with pytest.raises((TypeError, ValueError)):
        client.publish_dataset(1, name=name)
    with pytest.raises((TypeError, ValueError)):
        client.unpublish_dataset(name)


def test_an_unknown_dataset_is_an_error_or_the_default(client):
    with pytest.raises(DatasetNotFound, match=r"there is no dataset 'x'; client\.list_datasets"):
        client.get_dataset("x")
    assert client.get_dataset("x", default=None) is None
    client.publish_dataset(y=1)
    with pytest.raises(DatasetNotFound):
        client.unpublish_dataset(["y", "x"])
    assert client.list_datasets() == ("y",)


def test_wrong_datasets_are_named(cluster, client):
    with pytest.raises(TypeError, match="a dataset needs a name"):
        client.publish_dataset(5)
    with pytest.raises(TypeError, match="needs a dataset"):
        client.publish_dataset()
    with pytest.raises(TypeError, match="nothing to publish as 'x'"):
        client.publish_dataset(name="x")
    with pytest.raises(TypeError, match=r"name of a dataset is a str, an int, .* not NoneType"):
        client.publish_dataset({None: 2})
    with pytest.raises(TypeError, match="override= is True or False"):
        client.publish_dataset(x=1, override="yes")
    with pytest.raises(TypeError, match=r"name of a dataset is a str, an int, .* not list"):
        client.get_dataset(["a"])
    with pytest.raises(ValueError, match="needs a name"):
        client.unpublish_dataset([])
    with pytest.raises(TooLarge):
        client.publish_dataset(x=b"a" * (5 << 20))
    released = client.submit(abs, -1)
    released.release()
    with pytest.raises(SerializationError):
        client.publish_dataset(x=released)
    with Client(cluster, set_as_default=False) as other:
        pass
    for call in (
        lambda: other.publish_dataset(x=1),
        lambda: other.get_dataset("x"),
        lambda: other.list_datasets(),
        lambda: other.unpublish_dataset("x"),
        lambda: other.set_metadata("x", 1),
        lambda: other.get_metadata("x"),
        lambda: other.delete_metadata("x"),
    ):
        with pytest.raises(ClientClosed):
            call()
    assert client.list_datasets() == ()


def test_metadata_is_a_tree(client):
    client.set_metadata("a", {"x": 1, "y": (1, 2.5, None, True, b"b")})
    assert client.get_metadata("a") == {"x": 1, "y": [1, 2.5, None, True, b"b"]}
    client.set_metadata(["a", "z", "deep"], "text")
    assert client.get_metadata(["a", "z"]) == {"deep": "text"}
    client.set_metadata(["a", "x", "below"], 3)
    assert client.get_metadata(["a", "x"]) == {"below": 3}
    client.set_metadata("a", 5)
    assert client.get_metadata([]) == {"a": 5}
    assert client.get_metadata(["a", "x"], default=7) == 7
    with pytest.raises(KeyError):
        client.get_metadata("b")


def test_metadata_is_deleted(client):
    client.set_metadata(["gone", "x"], {"y": 1, "z": 2})
    client.delete_metadata(["gone", "x", "y"])
    assert client.get_metadata("gone") == {"x": {"z": 2}}
    for keys in (["gone", "x", "y"], ["gone", "x", "z", "deeper"], "unknown"):
        with pytest.raises(KeyError):
            client.delete_metadata(keys)
    client.delete_metadata("gone")
    assert client.get_metadata("gone", default=None) is None
    with pytest.raises(TypeError, match="key of metadata is a str, and several are a list of str"):
        client.delete_metadata(5)
    client.delete_metadata([])
    assert client.get_metadata([]) == {}


async def test_metadata_of_more_entries_than_a_message_has_is_read(cluster):
    async with Client(cluster, asynchronous=True, set_as_default=False) as client:
        n = MAX_FACTS + 10
        calls = (client.set_metadata(["many", str(i)], i) for i in range(n))
        await asyncio.gather(*calls)
        assert await client.get_metadata(["many", "7"]) == 7
        assert len(await client.get_metadata("many")) == n
        await client.delete_metadata("many")


def test_wrong_metadata_is_named(client):
    with pytest.raises(TypeError, match=r"metadata is plain data .*, not set"):
        client.set_metadata("a", {1})
    with pytest.raises(TypeError, match="the name of a key of metadata is a str, not int"):
        client.set_metadata("a", {1: 2})
    with pytest.raises(ValueError, match="at most 64 bits"):
        client.set_metadata("a", 1 << 70)
    with pytest.raises(ValueError, match="needs a key"):
        client.set_metadata([], 1)
    with pytest.raises(TypeError):
        client.set_metadata(5, 1)
    with pytest.raises(ValueError, match="less than 32 names"):
        client.get_metadata(["a"] * 40)
    nested = []
    nested.append(nested)
    with pytest.raises(ValueError, match="nested in at most 32"):
        client.set_metadata("a", nested)
    with pytest.raises(TooLarge, match="the metadata takes about 7"):
        client.set_metadata("a", "x" * 70_000)


async def test_asynchronous_clients_await_each_call(cluster):
    async with Client(cluster, asynchronous=True, set_as_default=False) as client:
        await client.publish_dataset(a=client.submit(abs, -3), b=[1])
        assert await client.list_datasets() == ("a", "b")
        assert await (await client.get_dataset("a")) == 3
        assert await client.get_dataset("x", default=None) is None
        await client.unpublish_dataset(["a", "b"])
        await client.set_metadata(["async", "x"], 1)
        assert await client.get_metadata("async") == {"x": 1}
        with pytest.raises(TypeError, match="would block the event loop"):
            client.datasets
