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

import weft
from tests.integration.attack_kit import (
    HANDSHAKE_S,
    MAX_PEAK,
    MAX_UNAUTHENTICATED,
    Attacker,
    Cluster,
    Registration,
    altered,
    attacked_cluster,
    client,
    enveloped,
    framed,
    peak_rss,
    submit,
    supervisor,
    worker,
)
from tests.leaks import wait_until
from weft.protocol.errors import HandshakeError, WrongCluster, WrongRole, WrongToken, WrongVersion
from weft.protocol.wire import messages as m
from weft.protocol.wire.framing import MAGIC, frame_header
from weft.protocol.wire.handshake import ROLE_LEVELS, ClientHandshake, Role
from weft.protocol.wire.levels import Level, lowered
from weft.protocol.wire.message import MAX_ITEMS, Message

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
    """A peer of a release with other protocol versions only."""

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


# --- Messages of registered peers -----------------------------------------------------------------

FORBIDDEN: dict[str, tuple[Role, Registration, list[Message], str]] = {
    "another role's": (
        Role.CLIENT,
        client,
        [m.AttemptsFinished(attempts=[1], nbytes=[1], durations_us=[1], results=[None])],
        "a client may not send AttemptsFinished",
    ),
    "the scheduler's own": (
        Role.CLIENT,
        client,
        [m.ResultsReady(keys=["k"], results=[b""])],
        "a client may not send ResultsReady",
    ),
    "registration again": (Role.CLIENT, client, [client()], "may not send RegisterClient"),
    "unknown function": (
        Role.CLIENT,
        client,
        [submit(functions=[bytes(16), b"f" * 16], function_names=["f", "g"])],
        "names a function",
    ),
    "no arguments": (Role.CLIENT, client, [submit(args=[None])], "without arguments"),
    "good before bad": (
        Role.CLIENT,
        client,
        [m.ReleaseKeys(keys=["k"]), submit(), m.GetMetrics(request=1)],
        "may not send GetMetrics",
    ),
    "submission by a worker": (
        Role.WORKER,
        worker,
        [submit()],
        "a worker may not send SubmitTasks",
    ),
    "report of what waits, by a client": (
        Role.CLIENT,
        client,
        [m.AttemptsBlocked(attempts=[1])],
        "a client may not send AttemptsBlocked",
    ),
    "end of waits, by a worker": (
        Role.WORKER,
        worker,
        [m.FailWaits(attempts=[1], texts=["x"])],
        "a worker may not send FailWaits",
    ),
    "report of what actors wait for, by a client": (
        Role.CLIENT,
        client,
        [
            m.ActorsBlocked(
                names=["a"], attempts=[1], keys=[[]], actors=[[]], calls=[[]], begun=[[]], open=[[]]
            )
        ],
        "a client may not send ActorsBlocked",
    ),
    "end of what actors wait for, by a supervisor": (
        Role.SUPERVISOR,
        supervisor,
        [m.ActorsResumed(attempts=[1])],
        "a supervisor may not send ActorsResumed",
    ),
    "results of actors taken, at the scheduler": (
        Role.CLIENT,
        client,
        [m.ActorResultsTaken(requests=[1])],
        "a client may not send ActorResultsTaken",
    ),
    "overdue attempts, by a client": (
        Role.CLIENT,
        client,
        [m.AttemptsOverdue(attempts=[1], timeouts_us=[1])],
        "a client may not send AttemptsOverdue",
    ),
    "overdue attempts without limits": (
        Role.WORKER,
        worker,
        [m.AttemptsOverdue(attempts=[1, 2], timeouts_us=[1])],
        "timeouts_us",
    ),
    "a worker that is held up, by a worker": (
        Role.WORKER,
        worker,
        [m.WorkerHeldUp(worker_id="w", attempts=[1], held_ms=[1 << 48])],
        "a worker may not send WorkerHeldUp",
    ),
    "waits with too few keys": (
        Role.WORKER,
        worker,
        [m.AttemptsBlocked(attempts=[1, 2], keys=[["a"]])],
        "keys",
    ),
    "submission by a supervisor": (
        Role.SUPERVISOR,
        supervisor,
        [submit()],
        "a supervisor may not send SubmitTasks",
    ),
}
FORBIDDEN["unknown function"][2][0].function_blobs = [b"good", None]  # type: ignore[attr-defined]


def test_clients_in_tasks_without_a_pass_or_a_running_task_submit_nothing(
    cluster: Cluster,
) -> None:
    token = lowered(cluster.token, Level.WORKER)
    hello = worker()
    with (
        Attacker(cluster, Role.WORKER, token=token) as one,
        Attacker(cluster, Role.TASK_CLIENT, token=token) as thief,
        Attacker(cluster, Role.TASK_CLIENT, token=token) as inside,
    ):
        one.say(hello)
        welcome = one.hear(m.Welcome)
        assert isinstance(welcome, m.Welcome)
        # The id of a worker is no secret; its pass is.
        thief.say(client(worker_id=hello.worker_id, task_pass="00" * 32))
        assert isinstance(thief.hear(m.Refused), m.Refused)
        thief.is_hung_up()
        inside.register(client(worker_id=hello.worker_id, task_pass=welcome.task_pass))
        for attempt in (0, 1, 1 << 40):
            inside.say(submit(options=[{"attempt": attempt}]))
            erred = inside.hear(m.KeysErred)
            assert isinstance(erred, m.KeysErred)
            assert [failure[0] for failure in erred.failures] == ["not-permitted"]
        inside.say(m.ShutdownCluster(reason="mine"))
        assert isinstance(inside.hear(m.Denied), m.Denied)
        inside.say(m.GetMetrics(request=1))
        inside.is_hung_up()
        one.numbers[:2] = welcome.epoch, welcome.session
        one.leave()  # with the tasks of the healthy client
        cluster.check("its pass is wrong", "a task client may not send GetMetrics")


@pytest.mark.parametrize("name", FORBIDDEN)
def test_forbidden_message_causes_one_log_line_and_closes_its_connection(
    cluster: Cluster, name: str
) -> None:
    role, registration, messages, line = FORBIDDEN[name]
    with Attacker(cluster, role) as attacker:
        attacker.register(registration())
        attacker.say(*messages)
        attacker.is_hung_up()
        cluster.check(line)


@pytest.mark.parametrize(
    ("change", "line"),
    [((1, 0), "epoch"), ((0, 1), "came in session")],
    ids=["epoch", "session"],
)
def test_frame_of_another_time_is_refused(
    cluster: Cluster, change: tuple[int, int], line: str
) -> None:
    with Attacker(cluster, Role.CLIENT) as attacker:
        attacker.register(client())
        attacker.numbers[0] -= change[0]
        attacker.numbers[1] += change[1]
        attacker.say(m.Heartbeat())
        attacker.is_hung_up()
        cluster.check(line)


@pytest.mark.parametrize(
    ("role", "registration", "reason", "line"),
    [
        (
            Role.CLIENT,
            client(last_epoch=2**63 - 1, epoch_proof="é"),
            "without the proof that a scheduler of this cluster has sent",
            "without the proof that a scheduler of this cluster has sent",
        ),
        (
            Role.WORKER,
            worker(last_epoch=2**62),
            "without the proof that a scheduler of this cluster has sent",
            "claims to have seen epoch 4611686018427387904",
        ),
        (
            Role.WORKER,
            worker(facts={"python": "2\nWARNING: forged\x1b[31m.7", "host": "far\nWARNING: away"}),
            "functions pickled by one",
            "worker attacker on far?WARNING: away is refused: Python 2?WARNING: forged?[31m.7, ",
        ),
        (
            Role.WORKER,
            worker(nthreads=2**63 - 1),
            "threads are more than",
            f"worker attacker is refused: {2**63 - 1} threads are more than",
        ),
    ],
    ids=["later epoch", "worker's later epoch", "other python", "threads"],
)
def test_registration_is_refused_with_a_reason(
    cluster: Cluster, role: Role, registration: Message, reason: str, line: str
) -> None:
    # An admin would be believed: it may stop the cluster anyway.
    token = lowered(cluster.token, ROLE_LEVELS[role])
    with Attacker(cluster, role, token=token) as attacker:
        attacker.say(registration)
        refused = attacker.hear(m.Refused)
        assert isinstance(refused, m.Refused)
        assert reason in refused.reason
        attacker.is_hung_up()
        cluster.check(line)


def test_names_cannot_forge_lines(cluster: Cluster) -> None:
    evil = "x\n2020-01-01 weft.scheduler WARNING: forged\x1b[31m\u2028y"
    with Attacker(cluster, Role.CLIENT) as attacker:
        attacker.register(client(name=evil))
        with Attacker(cluster, Role.SUPERVISOR) as other:
            other.register(supervisor())
            other.say(m.WorkerExited(worker_id="\n" * 9, reason=evil * 1000, running=[1, 2**62]))
            cluster.check("ended: x?2020-01-01")
    wait_until(lambda: "client x?" in cluster.scheduler.err)
    assert cluster.complaints() == []


# --- Messages that are ignored and counted --------------------------------------------------------


def test_client_may_be_wrong_about_keys(cluster: Cluster) -> None:
    strange = ["never heard of", "\u2028\x00", "k" * 1024]
    with Attacker(cluster, Role.CLIENT) as attacker:
        attacker.register(client())
        attacker.say(
            m.ReleaseKeys(keys=strange * 1000),
            m.CancelKeys(keys=strange, force=True, reason="\n", running=True),
            m.WithdrawKeys(keys=strange * 1000, reason="\n"),
            m.ReportMissing(keys=strange, holder="tcp://nowhere:1"),
            m.FetchKeys(request=2**63 - 1, keys=strange),
            m.WantKeys(keys=strange),
        )
        data = attacker.hear(m.KeysData)
        assert isinstance(data, m.KeysData)
        assert (data.keys, data.missing) == ([], strange)
        unknown = attacker.hear(m.KeysUnknown)
        assert isinstance(unknown, m.KeysUnknown)
        assert unknown.keys == strange
        attacker.say(m.RetryKeys(request=0, keys=strange * 100))
        unknown = attacker.hear(m.KeysUnknown)
        assert isinstance(unknown, m.KeysUnknown)
        assert unknown.keys == strange
        attacker.say(m.ReleaseKeys(keys=strange), m.Ask(request=1, name="cluster"))
        attacker.hear(m.Answer)
        cluster.check()


def test_client_may_be_wrong_about_dependencies(cluster: Cluster) -> None:
    with Attacker(cluster, Role.CLIENT) as attacker:
        attacker.register(client())
        attacker.say(submit(keys=["a", "b"], function_of=[0, 0], args=[b"", b""]))
        attacker.say(submit(keys=["itself"], dependencies=[["itself", "unknown"]]))
        erred = attacker.hear(m.KeysErred)
        assert isinstance(erred, m.KeysErred)
        assert erred.keys == ["itself"]
        attacker.leave()
    cluster.check()
    wait_until(lambda: cluster.metrics()["tasks"]["no_worker"] == 0)


def test_worker_may_be_wrong_about_attempts(cluster: Cluster) -> None:
    """Attempts that are over, those of others and those that never were; keys and relays alike."""
    n_before = cluster.metrics()["reports_stale_total"]
    never = [*range(1, 301), *range(2**62, 2**62 + 100)]
    n = len(never)
    with Attacker(cluster, Role.WORKER) as attacker:
        attacker.register(worker())
        zeros = [0] * n
        attacker.say(
            m.AttemptsFinished(attempts=never, nbytes=zeros, durations_us=zeros, results=[b""] * n),
            m.AttemptsErred(
                attempts=never, durations_us=zeros, failures=[["exception", "k"] for _ in never]
            ),
            m.AttemptsReturned(attempts=never),
            m.AttemptsWithdrawn(attempts=never, started=never),
            m.ReplicasAdded(attempts=never, keys=["never heard of"] * n),
            m.KeysMissing(keys=["never heard of"], holder="tcp://nowhere:1"),
            m.KeysData(request=2**62, keys=["k"], results=[b""], missing=["m"]),
            m.Heartbeat(next_ms=2**62),
            m.WorkerStatus(
                state="x" * 1000,
                nthreads=2**62,
                n_records=2**62,
                n_ready=2**62,
                managed_nbytes=2**62,
                resident_nbytes=2**62,
                cpu_percent=2**62,
            ),
        )
        dropped: list[int] = []
        while len(dropped) < 2 * n:
            message = attacker.hear(m.DropAttempts)
            assert isinstance(message, m.DropAttempts)
            dropped += message.attempts
        assert set(dropped) == set(never)
        assert cluster.metrics()["reports_stale_total"] == n_before + 4 * n + 1
        # It was assigned real tasks meanwhile, which are placed again when it leaves.
        attacker.leave()
    cluster.check()


def test_supervisor_may_be_wrong_about_workers(cluster: Cluster) -> None:
    with Attacker(cluster, Role.SUPERVISOR) as attacker:
        attacker.register(supervisor())
        attacker.say(m.WorkersAlive(worker_ids=["x", "x"], rss=[2**48, 0]))
        attacker.say(m.WorkersAlive(worker_ids=[], rss=[]))
        attacker.say(m.PluginDone(request=10**9, info={"failure": ["x"], "was_ready": "no"}))
        attacker.say(m.Bye(reason=""))
    cluster.check()


def test_client_may_be_wrong_about_locks_and_queues(cluster: Cluster) -> None:
    """Each call has an answer with the reason, and what an attacker held goes with it."""
    calls = [
        m.Operate(request=1, operation="climb", kind="tree", name="x"),
        m.Operate(request=2, operation="acquire", kind="lock", name="x", arguments={"lease": 5}),
        m.Operate(request=3, operation="create", kind="queue", name="x", arguments={"maxsize": -1}),
        m.Operate(request=4, operation="put", kind="queue", name="", values=[b"v"]),
        m.Operate(request=5, operation="put", kind="queue", name="x", values=[bytes(5 << 20)]),
        m.Operate(request=6, operation="set", kind="variable", name="x", values=[b"v"], keys=["?"]),
        m.Operate(request=7, operation="release", kind="lock", name="x", arguments={"lease": "1"}),
        m.Operate(request=8, operation="withdraw", arguments={"request": 10**18}),
    ]
    with Attacker(cluster, Role.CLIENT) as attacker:
        attacker.register(client())
        problems = []
        for call in calls:
            attacker.say(call)
            answer = attacker.hear(m.Operated)
            assert isinstance(answer, m.Operated)
            problems.append(answer.problem)
        attacker.say(m.Operate(request=0, operation="resume", arguments={"pending": "all"}))
        attacker.leave()
    wrong = "bad-call"
    assert problems == [wrong, wrong, wrong, wrong, "too-large", "key-lost", "not-held", ""]
    cluster.check()


def test_client_may_be_wrong_about_plugins(cluster: Cluster) -> None:
    """Each question has an answer with the reason; one that cannot be unpickled is not kept."""
    asked: list[tuple[str, dict[str, Any], list[Any]]] = [
        ("register_plugin", {}, [b"x"]),
        ("register_plugin", {"name": "x" * 1000, "plugin": "1"}, [b"x"]),
        ("register_plugin", {"name": "x", "plugin": 1}, [b"x"]),
        ("register_plugin", {"name": "x", "plugin": "1"}, []),
        ("register_plugin", {"name": "x", "plugin": "1"}, [None]),
        ("register_supervisor_plugin", {"name": "x", "plugin": "1", "restart": "yes"}, [b"x"]),
        ("register_supervisor_plugin", {"name": "x", "plugin": "1", "restart": True}, []),
        ("unregister_plugin", {"name": "none"}, []),
        ("unregister_plugin", {"name": ["x"]}, []),
    ]
    with Attacker(cluster, Role.CLIENT) as attacker:
        attacker.register(client())
        kinds = []
        for i, (name, arguments, blobs) in enumerate(asked):
            attacker.say(m.Ask(request=i + 1, name=name, arguments=arguments, blobs=blobs))
            failed = attacker.hear(m.AskFailed)
            assert isinstance(failed, m.AskFailed)
            kinds.append(failed.kind)
        arguments = {"name": "x", "plugin": "1"}
        attacker.say(
            m.Ask(request=99, name="register_plugin", arguments=arguments, blobs=[b"no pickle"])
        )
        answer = attacker.hear(m.Answer)
        attacker.leave()
    assert {*kinds} == {"bad-argument"}
    assert isinstance(answer, m.Answer)
    assert answer.info["n_failed"] == 2
    cluster.check("plugin 'x' could not be set up on worker")


def test_worker_that_breaks_the_rules_loses_its_work_to_others(cluster: Cluster) -> None:
    def n_lost() -> int:
        return sum(cluster.metrics()["workers_lost_total"].values())

    n_before = n_lost()
    with Attacker(cluster, Role.WORKER) as attacker:
        attacker.register(worker(nthreads=4))
        attacker.hear(m.AssignTasks)
        attacker.say(submit())
        attacker.is_hung_up()
        # Its loss has no line of its own if another attacker was lost a short time ago.
        wait_until(lambda: n_lost() > n_before)
        cluster.check("a worker may not send SubmitTasks")
    assert n_lost() == n_before + 1


def test_endless_frames_do_not_delay_other_clients(cluster: Cluster) -> None:
    """A flood of valid messages, from a client that reads no answer."""
    with Attacker(cluster, Role.CLIENT) as attacker:
        attacker.register(client())
        for _ in range(200):
            frames = [
                framed(attacker.payload(m.Heartbeat(next_ms=i).to_wire())) for i in range(100)
            ]
            attacker.send(b"".join(frames))
        attacker.say(m.Ask(request=1, name="cluster"))
        attacker.hear(m.Answer)
        cluster.check()


def test_after_all_that_the_scheduler_is_as_it_was(cluster: Cluster) -> None:
    """The last one."""

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
