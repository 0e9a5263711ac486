"""Messages between a worker and a child, over a real pair of sockets."""

from __future__ import annotations

import socket
import threading

import pytest

from weft.protocol.values.host_blobs import HostBlob, share
from weft.protocol.wire.payload import Payload
from weft.worker.isolation.link import Link, as_blob, as_plain


@pytest.fixture
def links():
    ends = [Link(end) for end in socket.socketpair()]
    yield ends
    for end in ends:
        end.close()


def sent(links, *message):
    """Send a message from one end, which may be larger than the socket holds; return it."""
    sender = threading.Thread(target=links[0].send, args=message)
    sender.start()
    received = links[1].receive()
    sender.join()
    return received


def test_messages_arrive_one_by_one(links):
    links[0].send("call", {"key": "a", "n": 1}, None)
    links[0].send("taken")
    assert links[1].is_ready()
    assert links[1].receive() == ("call", {"key": "a", "n": 1}, None)
    assert links[1].receive() == ("taken",)
    assert not links[1].is_ready()


@pytest.mark.parametrize("blob", [b"", b"short", b"x" * 1_000_000])
def test_plain_pickles_arrive_as_bytes(links, blob):
    (plain,) = sent(links, as_plain(blob))
    assert as_blob(plain, is_kept=False) == blob


@pytest.mark.parametrize("size", [10, 3_000_000])
def test_buffers_arrive_beside_their_pickle_and_can_be_written(links, size):
    (plain,) = sent(links, as_plain(Payload(b"pickle", [bytes(size), b"other"])))
    blob = as_blob(plain, is_kept=False)
    assert blob.data == b"pickle"
    assert [len(buffer) for buffer in blob.buffers] == [size, 5]
    blob.buffers[0][0] = 1


def test_a_blob_in_a_file_is_mapped_by_the_other_end(links):
    blob = share(Payload(b"pickle", [b"x" * 3_000_000]))
    if blob is None:
        pytest.skip("files in memory are missing: run it on Linux, with /dev/shm or memfd_create")
    (plain,) = sent(links, as_plain(blob))
    assert plain[0] == "file"
    found = as_blob(plain, is_kept=True)
    assert isinstance(found, HostBlob)
    assert bytes(found.data) == b"pickle"
    assert bytes(found.buffers[0]) == b"x" * 3_000_000


def test_the_end_of_the_other_side_is_noticed(links):
    links[0].close()
    assert links[1].is_ready()
    with pytest.raises(EOFError):
        links[1].receive()
