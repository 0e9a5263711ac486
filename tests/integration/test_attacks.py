"""Strangers and misbehaving peers at a real scheduler process, and the effect on other peers.

One scheduler, two workers and a client whose `map`s run, and are checked, through all of it. After
each attack: one line in the scheduler's log, the attacker's connection closed (or the message
ignored and counted, where that is the design), the same process alive, its memory as before, and
the client's next maps right.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import struct
from typing import Any

import msgpack
import pytest

from tests.integration.attack_kit import (
    HANDSHAKE_S,
    MAX_UNAUTHENTICATED,
    Attacker,
    Cluster,
    altered,
    attacked_cluster,
    check_as_before,
    client,
    enveloped,
    framed,
    submit,
    worker,
)
from tests.leaks import wait_until
from weft.protocol.errors import HandshakeError, WrongCluster, WrongRole, WrongToken, WrongVersion
from weft.protocol.wire import messages as m
from weft.protocol.wire.framing import MAGIC, frame_header
from weft.protocol.wire.handshake import ClientHandshake
from weft.protocol.wire.levels import Level, lowered
from weft.protocol.wire.message import MAX_ITEMS
from weft.protocol.wire.roles import ROLE_LEVELS, Role

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]
cluster = attacked_cluster


# --- Peers without the token ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("role", "options", "error", "lines"),
    [
        (Role.CLIENT, {"token": b"x" * 43}, WrongToken, ["claims to be a client does not hold"]),
        # Probably of a scheduler that was here before: no complaint.
        (Role.WORKER, {"cluster_id": b"another cluster!"}, WrongCluster, []),
        (Role.PEER, {}, WrongRole, ["a peer connected to a scheduler"]),
    ],
    ids=["token", "cluster", "role"],
)
def test_stranger_is_refused(
    cluster: Cluster,
    role: Role,
    options: dict[str, Any],
    error: type[HandshakeError],
    lines: list[str],
) -> None:
    n_before = cluster.metrics()["auth_failures_total"]
    with pytest.raises(error):
        Attacker(cluster, role, **options)
    cluster.check(*lines)
    wait_until(lambda: cluster.metrics()["auth_failures_total"] == n_before + 1)


class NewerHandshake(ClientHandshake):
    """A peer of a version with other protocol versions only."""

    def start(self) -> bytes:
        hello = bytearray(super().start())
        struct.pack_into(">HH", hello, 5, 7, 9)
        self._ours = self._ours._replace(raw=bytes(hello), proto_min=7, proto_max=9)
        return bytes(hello)


def test_other_version_is_refused(cluster: Cluster) -> None:
    nonce = secrets.token_bytes(32)
    handshake = NewerHandshake(
        cluster.token, cluster.cluster_id, Role.CLIENT, Role.SCHEDULER, b"", nonce
    )
    with Attacker(cluster) as attacker, pytest.raises(WrongVersion):
        attacker.shake_hands(handshake)
    cluster.check("no common protocol version: the client speaks 7 to 9")


def test_recorded_handshake_is_of_no_use(cluster: Cluster) -> None:
    handshake = ClientHandshake(
        cluster.token, cluster.cluster_id, Role.CLIENT, Role.SCHEDULER, b"", bytes(32)
    )
    with Attacker(cluster) as honest:
        recorded = [handshake.start()]
        honest.socket.sendall(recorded[0])
        recorded.append(handshake.feed(honest.socket.recv(58, socket.MSG_WAITALL)))
        honest.socket.sendall(recorded[1])
        handshake.feed(honest.socket.recv(38, socket.MSG_WAITALL))
        assert handshake.done
    with Attacker(cluster) as thief:
        thief.socket.sendall(recorded[0])
        assert len(thief.socket.recv(58, socket.MSG_WAITALL)) == 58
        thief.socket.sendall(recorded[1])
        thief.is_hung_up()
    cluster.check("does not hold this cluster's token")


@pytest.mark.parametrize(
    ("said", "line"),
    [
        (b"\x00\xff\x1b[31mred\nWARNING forged line\n" * 5000, "began with"),
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "it speaks HTTP"),
        # Before the handshake there are no frames, and no lengths to trust.
        (frame_header((1 << 32) - 1, [1 << 63]), "began with b'WFr1'"),
    ],
    ids=["garbage", "http", "frame"],
)
def test_garbage_is_refused(cluster: Cluster, said: bytes, line: str) -> None:
    with Attacker(cluster) as attacker:
        attacker.send(said)
        attacker.is_hung_up()
        cluster.check(line)


def test_slow_handshake_meets_its_deadline(cluster: Cluster) -> None:
    hello = ClientHandshake(
        cluster.token, cluster.cluster_id, Role.CLIENT, Role.SCHEDULER, b"", bytes(32)
    ).start()
    with Attacker(cluster) as attacker:
        attacker.socket.settimeout(HANDSHAKE_S / 20)
        answer = None
        for i in range(len(hello) - 1):
            attacker.send(hello[i : i + 1])
            try:
                answer = attacker.socket.recv(1)
            except TimeoutError:
                continue
            except ConnectionResetError:
                answer = b""
            break
        assert answer == b""
        cluster.check(f"the handshake was not done within {HANDSHAKE_S} s")


def test_flood_of_connections_is_bounded_and_its_lines_too(cluster: Cluster) -> None:
    """The tenth refusal within a minute is the last that has a line; the others are counted."""
    n_before = cluster.metrics()["auth_failures_total"]
    n_files = cluster.process.num_fds()
    with contextlib.ExitStack() as stack:
        for _ in range(MAX_UNAUTHENTICATED + 100):
            attacker = stack.enter_context(Attacker(cluster))
            # Otherwise it would look like a check whether the port is open.
            attacker.send(b"WEFT")
        assert cluster.process.num_fds() <= n_files + MAX_UNAUTHENTICATED + 20
        cluster.works_on()
        wait_until(lambda: cluster.process.num_fds() <= n_files + 5, 30, "the end of the flood")
    n = n_before + MAX_UNAUTHENTICATED + 100
    wait_until(lambda: cluster.metrics()["auth_failures_total"] == n)
    cluster.was_flooded = True
    assert len(cluster.complaints()) <= 10
    cluster.works_on()
    cluster.forgive()
    cluster.check()


# --- Frames of peers with the token ---------------------------------------------------------------


EMPTY_ARRAYS = (
    b"\x95\x00\x00\x01\x00"
    + b"\xdd\x00\x00\x00\x28"
    + (b"\xdd\x00\x03\xd0\x90" + b"\x90" * 250_000) * 40
)
SHORT_STRINGS = (
    b"\x95\x00\x00\x01\x00" + b"\x9f" + (b"\xdd\x00\x04\x00\x00" + b"\xa3ab!" * MAX_ITEMS) * 15
)


FRAMES: dict[str, tuple[bytes, str]] = {
    "no frame": (b"GET / HTTP/1.1\r\n\r\n", "a frame began with b'GET '"),
    "payload of 4 GiB": (frame_header((1 << 32) - 1), "a payload of 4294967295 bytes"),
    "payload just too long": (frame_header((16 << 20) + 1), "the limit is 16777216"),
    "4 billion buffers": (struct.pack(">4sII", MAGIC, 0, (1 << 32) - 1), "4294967295 buffers"),
    "buffer of 2**63": (frame_header(0, [1 << 63]), "9223372036854775808"),
    "buffers of 2**64 in all": (frame_header(0, [1 << 62] * 4), "18446744073709551616"),
    "stops in a buffer of 4 GiB": (frame_header(1, [4 << 30]) + bytes(1 << 20), "halfway"),
    "stops in a payload": (frame_header(1 << 20) + bytes(1000), "halfway"),
    "stops in a header": (MAGIC, "halfway"),
    "no MessagePack": (framed(b"\xc1" * 100), "cannot be decoded"),
    "no envelope": (framed(msgpack.packb({"op": "register"})), "a payload is [epoch"),
    "nested 100000 times": (framed(b"\x91" * 100_000 + b"\xc0"), "cannot be decoded"),
    "nested 100000 maps": (framed(b"\x81\xa1a" * 100_000 + b"\xc0"), "cannot be decoded"),
    "10 MB of empty arrays": (framed(EMPTY_ARRAYS), "arrays and maps"),
    "15 MB of short strings": (framed(SHORT_STRINGS), "values"),
    "array of 4 billion": (framed(b"\xdd\xff\xff\xff\xff"), "max_array_len"),
    "map of 4 billion": (framed(b"\xdf\xff\xff\xff\xff"), "max_map_len"),
    "extension of 4 GiB": (framed(b"\xc9\xff\xff\xff\xff\x01"), "max_ext_len"),
    "extension": (framed(b"\xc7\x00\x05"), "extension type 5"),
    "timestamp": (framed(msgpack.packb(msgpack.Timestamp(2**40))), "max_ext_len"),
    "invalid utf-8": (framed(b"\xa2\xff\xfe"), "utf-8"),
    "forged lines in text": (
        enveloped([m.Bye.code, "\nWARNING: x\x1b[31m"]),
        "Bye before registration",
    ),
    "number as a key": (framed(b"\x81\x01\x02"), "map key"),
    "sequence number": (enveloped(numbers=(0, 0, 2, 0)), "frame 2 came where frame 1"),
    "acknowledgement": (enveloped(numbers=(0, 0, 1, 9)), "frame 9 was acknowledged"),
    "negative number": (enveloped(numbers=(0, -1, 1, 0)), "numbers of an envelope"),
    "unknown code": (enveloped([250, 1]), "unknown code 250 before registration"),
    "code is text": (enveloped(["submit", 1]), "starts with its code"),
    "missing field": (enveloped([m.ReleaseKeys.code]), "ReleaseKeys"),
    "wrong type": (enveloped([m.ReleaseKeys.code, "abc"]), "ReleaseKeys.keys: an array"),
    "long key": (enveloped([m.ReleaseKeys.code, ["k" * 1_000_000]]), "max_str_len"),
    "too long key": (enveloped([m.ReleaseKeys.code, ["k" * 2000]]), "1 to 1024 characters"),
    "blob without buffers": (
        enveloped([m.AttemptsFinished.code, [1], [1], [1], [[0, 1]]]),
        "does not carry",
    ),
    "unequal columns": (
        enveloped([m.AttemptsFinished.code, [1, 2], [1], [1], [None]]),
        "AttemptsFinished.nbytes: 1 items for 2 rows",
    ),
    "unequal table": (altered(submit(), function_names=[]), "SubmitTasks.function_names: 0 items"),
    "index beyond its table": (altered(submit(), function_of=[1]), "function_of points beyond"),
    "unregistered": (altered(m.ReleaseKeys(keys=["k"])), "ReleaseKeys before registration"),
    "registered as another": (altered(worker()), "RegisterWorker before registration"),
}
#: The others of the slow ones have their turn in `test_all_attacks_at_once_are_refused`.
ONE_BY_ONE = [name for name in FRAMES if name not in {"stops in a payload", "stops in a header"}]


@pytest.mark.parametrize("name", ONE_BY_ONE)
def test_bad_frame_causes_one_log_line_and_closes_its_connection(
    cluster: Cluster, name: str
) -> None:
    data, line = FRAMES[name]
    with Attacker(cluster, Role.CLIENT) as attacker:
        attacker.send(data)
        attacker.is_hung_up()
        cluster.check(line)


def test_all_attacks_at_once_are_refused(cluster: Cluster) -> None:
    with contextlib.ExitStack() as stack:
        attackers = [stack.enter_context(Attacker(cluster, Role.CLIENT)) for _ in FRAMES]
        n_before = cluster.metrics()["protocol_errors_total"]
        for attacker, (data, _) in zip(attackers, FRAMES.values(), strict=True):
            attacker.send(data)
        for attacker in attackers:
            attacker.is_hung_up()
        wait_until(lambda: len(cluster.complaints()) == len(FRAMES), 30, "all lines")
        cluster.works_on()
        assert cluster.metrics()["protocol_errors_total"] == n_before + len(FRAMES)
        lines = cluster.complaints()
        for _, text in FRAMES.values():
            assert any(text in line for line in lines)
        cluster.forgive()
        cluster.check()


# --- Holders of a lower token ---------------------------------------------------------------------


class BoastfulHandshake(ClientHandshake):
    """A peer that states a higher level than that of its token, and signs what it stated."""

    def start(self) -> bytes:
        hello = bytearray(super().start())
        hello[9] = Level.ADMIN << 4 | hello[9] & 15
        self._ours = self._ours._replace(raw=bytes(hello), level=Level.ADMIN)
        return bytes(hello)


@pytest.mark.parametrize(
    ("held", "role"),
    [
        (Level.VIEW, Role.WORKER),
        (Level.VIEW, Role.SUPERVISOR),
        (Level.VIEW, Role.CLIENT),
        (Level.WORKER, Role.CLIENT),
    ],
)
def test_role_beyond_a_token_is_refused_stated_truly_or_not(
    cluster: Cluster, held: Level, role: Role
) -> None:
    token = lowered(cluster.token, held)
    needed = ROLE_LEVELS[role].label
    n_before = cluster.metrics()["auth_failures_total"]
    with pytest.raises(WrongToken, match=f"weft token --role {needed}"):
        Attacker(cluster, role, token=token)
    nonce = secrets.token_bytes(32)
    boast = BoastfulHandshake(token, cluster.cluster_id, role, Role.SCHEDULER, b"", nonce)
    with Attacker(cluster) as attacker, pytest.raises(WrongToken):
        attacker.shake_hands(boast)
    # Counted, not looked for in the log, which has ten of them per minute.
    wait_until(lambda: cluster.metrics()["auth_failures_total"] == n_before + 2)
    cluster.works_on()
    cluster.forgive()


def test_level_changed_by_a_relay_is_noticed(cluster: Cluster) -> None:
    honest = ClientHandshake(
        lowered(cluster.token, Level.CLIENT),
        cluster.cluster_id,
        Role.CLIENT,
        Role.SCHEDULER,
        b"",
        secrets.token_bytes(32),
    )
    n_before = cluster.metrics()["auth_failures_total"]
    with Attacker(cluster) as relay:
        hello = bytearray(honest.start())
        hello[9] = Level.ADMIN << 4 | hello[9] & 15
        relay.socket.sendall(hello)
        relay.socket.sendall(honest.feed(relay.socket.recv(58, socket.MSG_WAITALL)))
        with pytest.raises(WrongToken):
            honest.feed(relay.socket.recv(38, socket.MSG_WAITALL))
    wait_until(lambda: cluster.metrics()["auth_failures_total"] == n_before + 1)
    cluster.works_on()
    cluster.forgive()


def test_orders_to_stop_without_the_token_of_an_admin_are_denied_and_counted(
    cluster: Cluster,
) -> None:
    n_before = cluster.metrics()["denied_total"]
    token = lowered(cluster.token, Level.CLIENT)
    with Attacker(cluster, Role.CLIENT, token=token) as attacker:
        attacker.register(client())
        attacker.say(*[m.ShutdownCluster(reason="mine", request=n) for n in range(1000)])
        for n in range(1000):
            denied = attacker.hear(m.Denied)
            assert isinstance(denied, m.Denied)
            assert (denied.request, denied.needed, denied.level) == (n, "admin", "client")
        attacker.leave()
    cluster.check()
    assert cluster.metrics()["denied_total"] == n_before + 1000


def test_viewer_that_acts_is_denied_and_one_that_registers_is_hung_up_on(
    cluster: Cluster,
) -> None:
    token = lowered(cluster.token, Level.VIEW)
    n_before = cluster.metrics()["denied_total"]
    with Attacker(cluster, Role.VIEWER, token=token) as attacker:
        for message, needed in ((submit(), "client"), (m.ShutdownCluster(reason="mine"), "admin")):
            attacker.say(message)
            denied = attacker.hear(m.Denied)
            assert isinstance(denied, m.Denied)
            assert (denied.needed, denied.level) == (needed, Level.VIEW.label)
        cluster.check()
        assert cluster.metrics()["denied_total"] == n_before + 2
        attacker.say(client())
        attacker.is_hung_up()
        cluster.check("a viewer may not send RegisterClient")


def test_after_all_that_the_scheduler_is_as_it_was(cluster: Cluster) -> None:
    """The last one."""
    check_as_before(cluster)
