"""Peers of an earlier and of a later version beside this one: real processes and sockets.

Such a peer is made of this version, by code that runs first in its process: it leaves fields out of
the messages, or adds some, where they are encoded and decoded.
"""

from __future__ import annotations

import logging

import pytest

import weft
from tests.deploy.daemons import daemon, file_of, run, scheduler
from weft.protocol.errors import UnsupportedRequest
from weft.protocol.wire import messages as m

pytestmark = pytest.mark.slow

#: Knows no field that has a default and stands at the end, and not the word that lets a worker go.
EARLIER = """
from weft.protocol.wire import codec, message as schema, messages
from weft.protocol.wire.message import coders_of

def shortened(cls):
    to_wire, n = coders_of(cls)[0], 1 + cls._n_required
    cls.to_wire = lambda self: to_wire(self)[:n]
    cls.short_wire = lambda self: None

for cls in schema._REGISTRY.values():
    shortened(cls)
from_wire = codec.from_wire
def of_earlier(wire, buffers):
    if wire[0] == 87:  # AskToLeave
        wire = [240, *wire[1:]]
    cls = schema._REGISTRY.get(wire[0])
    return from_wire(wire if cls is None else wire[:1 + cls._n_required], buffers)
codec.from_wire = of_earlier
"""

#: Sends two more fields in each message, one of them with a reference to buffers, and with each
#: heartbeat, and each request for data, a message that no other process knows.
LATER = """
from weft.protocol.wire import codec, message as schema, messages
from weft.protocol.wire.message import coders_of

class Question(schema.Message):
    __slots__ = ()
    def to_wire(self):
        return [250, {"new": True}]
    def short_wire(self):
        return None

def lengthened(cls):
    to_wire = coders_of(cls)[0]
    cls.to_wire = lambda self: [*to_wire(self), [[0, 1]], {"later": [1, 2]}]
    cls.short_wire = lambda self: None

for cls in schema._REGISTRY.values():
    lengthened(cls)

encode = codec.WireState.encode
def of_later(self, sent):
    kinds = set(map(type, sent))
    if not kinds.isdisjoint((messages.Heartbeat, messages.WorkersAlive, messages.GetData)):
        sent = [*sent, Question()]
    return encode(self, sent)
codec.WireState.encode = of_later
"""


#: A `weft worker`; its processes are forks of this one.
WORKER = """
import sys
from weft.deploy.cli.command import main
main(["worker", "--nworkers", "1", "--nthreads", "2", *sys.argv[1:]])
"""

#: A `weft scheduler`.
SCHEDULER = """
import sys
from weft.deploy.cli.command import main
main(["scheduler", "--port", "0", *sys.argv[1:]])
"""

JOB = """
import sys, weft

def double(x):
    return 2 * x

def add(*xs):
    return sum(xs)

def fail():
    raise ValueError("from the task")

with weft.Client(connection_file=sys.argv[1]) as client:
    client.wait_for_workers(2, timeout=60)
    futures = client.map(double, range(3000))
    assert client.gather(futures) == [2 * x for x in range(3000)]
    # Inputs of both workers, and results that the client fetches itself.
    large = client.map(bytes, [1_000_000] * 8)
    assert client.submit(lambda *p: sum(map(len, p)), *large).result(60) == 8_000_000
    assert [len(b) for b in client.gather(large)] == [1_000_000] * 8
    assert client.submit(double, 4, key="named").result(60) == 8
    error = client.submit(fail).exception(60)
    assert isinstance(error, ValueError), error
    assert len(client.scheduler_info()["workers"]) == 2
    print("done")
"""


@pytest.mark.parametrize("version", [EARLIER, LATER], ids=["earlier", "later"])
def test_a_worker_and_a_client_of_another_version_do_their_work(tmp_path, version):
    with (
        scheduler(folder=tmp_path) as started,
        daemon(folder=tmp_path, code=version + WORKER) as theirs,
        daemon(folder=tmp_path, code=WORKER) as ours,
    ):
        for workers in (theirs, ours):
            workers.wait_for("registered")
        for client in (version + JOB, JOB):
            done = run(str(file_of(started)), folder=tmp_path, code=client)
            assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr
        if version is LATER:
            # From the worker, and from its supervisor.
            theirs.wait_for("does not know messages of code 250", 2)
        for process in (started, theirs, ours):
            assert "ERROR" not in process.err, process.err
            assert "invalid message" not in process.err, process.err
        for process in (started, ours):
            assert "code 250" not in process.err, process.err


def test_a_worker_leaves_a_scheduler_that_does_not_know_its_request(tmp_path):
    with daemon(folder=tmp_path, code=EARLIER + SCHEDULER) as theirs:
        theirs.wait_for("connect ")
        with daemon(folder=tmp_path, code=WORKER) as ours:
            ours.wait_for("registered")
            assert ours.stop() == 0
            assert "grace period" not in ours.err
        theirs.wait_for("has left (its supervisor stops: SIGTERM)")
        assert " WARNING: " not in ours.err + theirs.err


def test_a_request_that_the_scheduler_does_not_know_fails_with_a_typed_error(
    tmp_path, monkeypatch, caplog
):
    caplog.set_level(logging.WARNING, "weft")
    with (
        scheduler(folder=tmp_path) as started,
        weft.Client(connection_file=file_of(started)) as client,
    ):
        with monkeypatch.context() as patch:
            patch.setattr(m.Ask, "short_wire", lambda self: [251, self.request, "of a later one"])
            with pytest.raises(UnsupportedRequest, match=r"'cluster'.*install the same version"):
                client.scheduler_info()
        assert client.scheduler_info()["workers"] == {}
        assert not caplog.records
