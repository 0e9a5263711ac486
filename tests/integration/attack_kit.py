"""The kit for the tests of attacks: a cluster with a healthy client, and an attacker."""

from __future__ import annotations

import contextlib
import re
import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack
import psutil
import pytest

import weft
from tests.deploy.daemons import Daemon, daemon
from tests.leaks import wait_until
from weft.protocol.errors import HandshakeError
from weft.protocol.trust.connection_file import ConnectionFile
from weft.protocol.wire import messages as m
from weft.protocol.wire.codec import WireState
from weft.protocol.wire.framing import FrameDecoder, frame_header
from weft.protocol.wire.handshake import ClientHandshake
from weft.protocol.wire.message import Message
from weft.protocol.wire.roles import Role

#: Makes the first message of a peer.
Registration = Callable[[], Message]

HANDSHAKE_S = 2
PROGRESS_S = 1
MAX_UNAUTHENTICATED = 256
MAX_GROWTH = 100 << 20
#: For a moment, while a long payload is decoded that will be refused.
MAX_PEAK = 150 << 20
SUPPRESSED = "more connections refused"

SCHEDULER = f"""
import logging, sys
from pathlib import Path
from weft.protocol.host.log_lines import log_to_stderr
from weft.deploy.scheduler.daemon import DaemonConfig, run_daemon
from weft.protocol.trust.security import Security, new_cluster_id, new_token
from weft.scheduler.config import SchedulerConfig

log_to_stderr(logging.INFO)
run_daemon(
    DaemonConfig(
        SchedulerConfig(
            ["tcp://127.0.0.1:0"],
            Security(new_token().encode(), new_cluster_id()),
            client_lease_s=1,
            handshake_timeout_s={HANDSHAKE_S},
            progress_timeout_s={PROGRESS_S},
        ),
        connection_file=lambda server: Path("cluster.json").resolve(),
        on_ready=lambda server, url: print("ready", flush=True),
    )
)
"""


def peak_rss(process: psutil.Process) -> int:
    """The most memory that the process ever had, where that is known; else what it has now."""
    status = Path(f"/proc/{process.pid}/status")
    if not status.exists():
        return int(process.memory_info().rss)
    (line,) = [line for line in status.read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) << 10


# --- The cluster and its healthy client -----------------------------------------------------------


class Cluster:
    """A scheduler process with its workers, seen from outside."""

    def __init__(self, scheduler: Daemon, file: Path) -> None:
        self.scheduler = scheduler
        self.file = file
        found = ConnectionFile.read(file)
        self.address = found.addresses[0]
        self.token = found.token.encode()
        self.cluster_id = bytes.fromhex(found.cluster_id)
        self.process = psutil.Process(scheduler.process.pid)
        self.n_rounds = 0
        self.wrong: list[Any] = []
        self._over = threading.Event()
        self._client = threading.Thread(target=self._use, name="healthy client")
        #: The lines of the log that were checked.
        self._n_seen = 0
        #: True if more was refused than the lines allowed in a minute.
        self.was_flooded = False

    def _use(self) -> None:
        try:
            with weft.Client(connection_file=self.file, set_as_default=False) as client:
                while not self._over.is_set():
                    start = self.n_rounds * 1000
                    futures = client.map(lambda x: x * 2 + 1, range(start, start + 300))
                    total = client.submit(lambda *xs: sum(xs), *futures)
                    expected = [x * 2 + 1 for x in range(start, start + 300)]
                    got = client.gather([*futures, total], timeout=60)
                    if got != [*expected, sum(expected)]:
                        self.wrong.append(got)
                    self.n_rounds += 1
        except BaseException as error:
            self.wrong.append(error)
            raise

    def start(self) -> None:
        self._client.start()
        self.works_on(5)
        self.rss = self.process.memory_info().rss
        self.peak = peak_rss(self.process)

    def stop(self) -> None:
        self._over.set()
        self._client.join()

    def works_on(self, n_rounds: int = 1) -> None:
        """Two more than asked for: the first may have been under way, the second started before."""
        enough = self.n_rounds + n_rounds + 1

        def is_enough() -> bool:
            assert self.wrong == []
            assert self._client.is_alive() or self.n_rounds >= enough
            return self.n_rounds >= enough

        wait_until(is_enough, 60, "rounds of the healthy client")

    def complaints(self) -> list[str]:
        """The lines of the log that are not at level info, and not checked before."""
        lines = self.scheduler.err.splitlines()[self._n_seen :]
        # The end of the minute in which lines are counted, on a slow machine; and the end of a
        # worker of an attacker, to which tasks of the healthy client were given meanwhile.
        expected = re.compile(
            rf" INFO: |{re.escape(SUPPRESSED)}|WARNING: worker attacker\S* is lost"
            r"|WARNING: workers were lost .*: attacker"
        )
        return [line for line in lines if not expected.search(line)]

    def check(self, *expected: str) -> None:
        """There is one line for each of `expected`; the others go on; memory did not grow."""
        wait_until(lambda: len(self.complaints()) >= len(expected), 30, f"{expected} in the log")
        self.works_on()
        assert self.scheduler.process.poll() is None
        found = self.complaints()
        assert len(found) == len(expected), found
        for line, text in zip(found, expected, strict=True):
            assert " WARNING: " in line
            assert text in line, found
            assert line.isprintable()
        assert self.process.memory_info().rss - self.rss < MAX_GROWTH
        self.forgive()

    def forgive(self) -> None:
        """Mark all lines of the log as checked."""
        self._n_seen = len(self.scheduler.err.splitlines())

    def metrics(self) -> dict[str, Any]:
        """The scheduler's counters, those of the transport included, not older than this call."""
        with Attacker(self, Role.VIEWER) as viewer:

            def ask() -> dict[str, Any]:
                viewer.say(m.GetMetrics(request=1))
                answer = viewer.hear(m.Metrics)
                assert isinstance(answer, m.Metrics)
                return answer.values

            # The counts of the transport are read a few times per second.
            before = ask()["cpu_seconds_total"]
            return wait_until(
                lambda: found if (found := ask())["cpu_seconds_total"] != before else {}
            )


@pytest.fixture(scope="module")
def attacked_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with a healthy client; its log is checked at the end as well."""
    folder = tmp_path_factory.mktemp("attacks")
    file = folder / "cluster.json"
    with daemon(folder=folder, code=SCHEDULER) as scheduler:
        scheduler.wait_for("ready")
        options = ("--connection-file", str(file), "--nworkers", "2", "--nthreads", "1")
        with daemon("worker", *options, folder=folder) as workers:
            workers.wait_for("registered", 2)
            cluster = Cluster(scheduler, file)
            cluster.start()
            try:
                yield cluster
            finally:
                cluster.stop()
        assert scheduler.stop() == 0
        assert "Traceback" not in scheduler.err
        assert " ERROR: " not in scheduler.err
        assert not cluster.was_flooded or SUPPRESSED in scheduler.err


# --- The attacker ---------------------------------------------------------------------------------


class Attacker:
    """A socket that can do the handshake, number its frames, and send anything."""

    def __init__(self, cluster: Cluster, role: Role | None = None, **options: Any) -> None:
        host, port = cluster.address.removeprefix("tcp://").rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=30)
        self.numbers = [0, 0, 0, 0]
        self._decoder = FrameDecoder()
        self._wire = WireState()
        self._wire.seq_out = 2**62  # what it sends is numbered by hand
        self.heard: list[Message] = []
        if role is None:
            return
        handshake = ClientHandshake(
            options.get("token", cluster.token),
            options.get("cluster_id", cluster.cluster_id),
            role,
            Role.SCHEDULER,
            b"",
            secrets.token_bytes(32),
        )
        try:
            self.shake_hands(handshake)
        except HandshakeError:
            self.socket.close()
            raise

    def __enter__(self) -> Attacker:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def shake_hands(self, handshake: ClientHandshake) -> None:
        data = handshake.start()
        while True:
            self.socket.sendall(data)
            if handshake.done:
                return
            chunk = self.socket.recv(handshake.bytes_wanted)
            if not chunk:
                raise handshake.on_eof()
            data = handshake.feed(chunk)

    def payload(self, *wire: Any) -> bytes:
        """A valid envelope around any content."""
        self.numbers[2] += 1
        packed: bytes = msgpack.packb([*self.numbers, list(wire)], default=_not_packable)
        return packed

    def say(self, *messages: Message) -> None:
        self.send_payload(self.payload(*[message.to_wire() for message in messages]))

    def send_payload(self, payload: bytes) -> None:
        self.send(frame_header(len(payload)) + payload)

    def send(self, data: bytes) -> None:
        # It may have hung up already, as it should.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.socket.sendall(data)

    def hear(self, kind: type[Message]) -> Message:
        """The next message of a kind; those of other kinds wait."""
        while True:
            for message in self.heard:
                if isinstance(message, kind):
                    self.heard.remove(message)
                    return message
            n = self.socket.recv_into(self._decoder.get_buffer(-1))
            assert n, "the scheduler has hung up"
            for frame in self._decoder.received(n):
                self.heard += self._wire.decode(frame)

    def register(self, message: Message) -> Attacker:
        self.say(message)
        welcome = self.hear(m.Welcome)
        assert isinstance(welcome, m.Welcome)
        self.numbers[:2] = welcome.epoch, welcome.session
        return self

    def leave(self) -> None:
        """Send a goodbye so that it is read."""
        self.say(m.Bye(reason="done"))
        # Closed with something unread, the kernel would reset the connection, goodbye and all.
        self.socket.shutdown(socket.SHUT_WR)
        assert self.is_hung_up()

    def is_hung_up(self) -> bool:
        """Wait until the other end has closed."""
        try:
            while self.socket.recv(1 << 16):
                continue
        except ConnectionResetError:
            pass
        return True


def _not_packable(value: object) -> Any:
    raise AssertionError(f"the attack is wrong: {value!r}")


def client(**changes: Any) -> m.RegisterClient:
    fields: dict[str, Any] = {
        "client_id": secrets.token_hex(8),
        "name": "attacker",
        "session": 1,
        "last_epoch": 0,
        "facts": {},
    }
    return m.RegisterClient(**{**fields, **changes})


def worker(**changes: Any) -> m.RegisterWorker:
    fields: dict[str, Any] = {
        "worker_id": secrets.token_hex(8),
        "name": "attacker",
        "session": 1,
        "last_epoch": 0,
        "address": f"tcp://127.0.0.1:1?{secrets.token_hex(4)}",
        "nthreads": 1,
        "memory_limit": 0,
        "resources": {},
        "supervisor_id": "",
        "facts": {},
    }
    return m.RegisterWorker(**{**fields, **changes})


def supervisor() -> m.RegisterSupervisor:
    return m.RegisterSupervisor(
        supervisor_id=secrets.token_hex(8), session=1, last_epoch=0, facts={}
    )


def submit(**changes: Any) -> m.SubmitTasks:
    fields: dict[str, Any] = {
        "functions": [bytes(16)],
        "function_names": ["f"],
        "function_blobs": [b"no pickle"],
        "function_of": [0],
        "keys": ["attack"],
        "args": [b"no pickle either"],
        "dependencies": [],
        "spec_hashes": [],
        "options": [{"workers": ["nobody"]}],
    }
    return m.SubmitTasks(**{**fields, **changes})


# --- Frames made by hand --------------------------------------------------------------------------


def framed(payload: bytes) -> bytes:
    return frame_header(len(payload)) + payload


def enveloped(*wire: Any, numbers: tuple[Any, ...] = (0, 0, 1, 0)) -> bytes:
    packed: bytes = framed(msgpack.packb([*numbers, list(wire)]))
    return packed


def altered(message: Message, **changes: Any) -> bytes:
    for name, value in changes.items():
        setattr(message, name, value)
    return enveloped(message.to_wire())


def check_as_before(cluster: Cluster) -> None:
    """Check that the scheduler is as it was before all attacks, and serves clients."""

    def is_calm() -> bool:
        found = cluster.metrics()
        # The two workers and their supervisor, the client, and the one that asks.
        return bool(
            (found["workers"]["running"], found["clients"], found["connections"]) == (2, 1, 5)
            and not found["tasks"]["no_worker"]
            and not found["tasks"]["erred"]
        )

    wait_until(is_calm, 30)
    assert peak_rss(cluster.process) - cluster.peak < MAX_PEAK
    with weft.Client(connection_file=cluster.file, set_as_default=False) as newcomer:
        assert newcomer.gather(newcomer.map(abs, range(-100, 0))) == list(range(100, 0, -1))
    cluster.check()
