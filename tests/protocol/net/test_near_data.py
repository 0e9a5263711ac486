"""Connections to data ports of the same host: files in the place of data, and without them."""

from __future__ import annotations

import os
import sys

import numpy as np
import pytest

from tests.protocol.net.test_data_connection import Asker, Port, started
from weft.protocol.host.host_files import host_id
from weft.protocol.net import data_connection
from weft.protocol.values.host_blobs import SHARED_NBYTES, HostBlob, share
from weft.protocol.values.serialize import dumps, loads
from weft.protocol.wire import plain
from weft.protocol.wire.messages import (
    GetData,
    KeysData,
    Put,
    PutDone,
    PutFiles,
    Unsupported,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has such files")

N = SHARED_NBYTES // 8


def array_of(number):
    return dumps(np.full(N, number))


class NearPort(Port):
    """Answers with files, of which the first ones may be wrong; without a host with data."""

    wrong: bytes | None = None
    shared = None

    def on_messages(self, connection, messages):
        self.messages += messages
        for message in messages:
            connection.send([self.answer(message)])

    def answer(self, message):
        if isinstance(message, PutFiles):
            return PutDone(request=message.request, is_taken=False)
        if isinstance(message, Put):
            return PutDone(request=message.request)
        if not message.host:
            return KeysData(request=message.request, keys=["k"], results=[array_of(2)], missing=[])
        assert message.host == host_id()
        file = self.wrong
        if file is None:
            self.shared = share(array_of(1))
            file = self.shared.reference.packed()
        return KeysData(
            request=message.request,
            keys=["k", "small"],
            results=[None, dumps("s")],
            missing=[],
            files=[file, None],
        )


class GonePort(NearPort):
    @property
    def wrong(self):
        name = f"/proc/{os.getpid()}/fd/60000"
        return plain.pack([name, "/memfd:weft-0 (deleted)", 8 * N])


class ForbiddenPort(NearPort):
    wrong = plain.pack(["/etc/passwd", "x", 8 * N])


class EarlierPort(NearPort):
    """Knows no files."""

    def answer(self, message):
        if isinstance(message, PutFiles):
            return Unsupported(unknown_code=message.code, request=message.request)
        if isinstance(message, GetData):
            message = GetData(request=message.request, keys=message.keys)
        return super().answer(message)


class Reader(Asker):
    def on_answer(self, address, message):
        self.results = getattr(message, "results", None)
        super().on_answer(address, message)


def asked(run, tmp_path, make, *requests):
    """Ask one after the other; return the result of each, and what came to the port."""

    async def main():
        server, address = await started(f"unix://{tmp_path}/s", make)
        reader = Reader()
        found = []
        for i, message in enumerate(requests):
            reader.connections.ask(address, message)
            await reader.until(lambda n=i + 1: len(reader.answers) + len(reader.failures) == n)
            found.append(reader.results)
        end = await server.end(0)
        assert reader.failures == []
        await reader.connections.close()
        await server.listener.close()
        outcome.append((found, end.messages))

    outcome = []
    run(main())
    return outcome[0]


def get(request):
    return GetData(request=request, keys=["k"])


def test_data_in_files_is_mapped_and_looks_as_if_it_was_sent(run, tmp_path):
    ((large, small),), came = asked(run, tmp_path, NearPort, get(1))
    assert isinstance(large, HostBlob)
    assert loads(large)[-1] == 1
    assert loads(small) == "s"
    assert [message.host for message in came] == [host_id()]


def test_data_that_was_dropped_meanwhile_is_asked_for_again_and_files_are_still_mapped(
    run, tmp_path
):
    found, came = asked(run, tmp_path, GonePort, get(1), get(2))
    assert [loads(result)[0] for (result,) in found] == [2, 2]
    assert [message.host for message in came] == [host_id(), "", host_id(), ""]
    assert [message.request for message in came] == [1, 1, 2, 2]


def test_files_that_cannot_be_opened_are_asked_for_once(run, tmp_path):
    found, came = asked(run, tmp_path, ForbiddenPort, get(1), get(2))
    assert [loads(result)[0] for (result,) in found] == [2, 2]
    assert [message.host for message in came] == [host_id(), "", ""]


def put(request, value):
    return Put(request=request, keys=["k"], attempts=[7], values=[value])


@pytest.mark.parametrize("make", [NearPort, EarlierPort], ids=["refused", "earlier"])
def test_values_in_files_are_sent_where_the_worker_cannot_map_them(run, tmp_path, make):
    value = share(array_of(3))
    _, came = asked(run, tmp_path, make, put(1, value), put(2, value))
    assert [type(message) for message in came] == [PutFiles, Put, Put]
    assert (came[0].attempts, came[0].host) == ([7], host_id())
    assert all(loads(message.values[0])[0] == 3 for message in came[1:])


def test_each_of_several_values_is_sent_again(run, tmp_path):
    async def main():
        server, address = await started(f"unix://{tmp_path}/s", NearPort)
        reader = Reader()
        value = share(array_of(3))
        for i in (1, 2, 3):
            reader.connections.ask(address, put(i, value))
        await reader.until(lambda: reader.answers == [1, 2, 3])
        end = await server.end(0)
        assert [type(message) for message in end.messages] == [PutFiles] * 3 + [Put] * 3
        await reader.connections.close()
        await server.listener.close()

    run(main())


def test_values_of_this_process_alone_are_sent(run, tmp_path):
    _, came = asked(run, tmp_path, NearPort, put(1, array_of(3)))
    assert [type(message) for message in came] == [Put]


def test_an_earlier_worker_sends_data(run, tmp_path):
    (((found),),), came = asked(run, tmp_path, EarlierPort, get(1))
    assert loads(found)[0] == 2
    assert len(came) == 1


def test_without_a_host_nothing_is_offered(run, tmp_path, monkeypatch):
    monkeypatch.setattr(data_connection, "host_id", lambda: "")
    _, came = asked(run, tmp_path, NearPort, get(1), put(2, share(array_of(3))))
    assert [type(message) for message in came] == [GetData, Put]
    assert came[0].host == ""
