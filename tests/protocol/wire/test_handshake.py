"""Both ends of the handshake: paired, cut anywhere, and under attack."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocol.wire.handshake_kit import (
    BINDING,
    CLUSTER,
    PROTO_MAX,
    REASON,
    ROLE,
    TOKEN,
    client,
    patched,
    run_to_answer,
    server,
    server_hello_bytes,
)
from weft.protocol.errors import (
    HandshakeError,
    LocalProtocolError,
    WrongCluster,
    WrongRole,
    WrongToken,
    WrongVersion,
)
from weft.protocol.wire import handshake, handshake_messages
from weft.protocol.wire.handshake import PREAUTH_BYTES, ClientHandshake, ServerHandshake
from weft.protocol.wire.levels import Level, hkdf_sha256, with_user
from weft.protocol.wire.roles import Role

OTHER_TOKEN = b"a token of some other cluster, alas"


OTHER_CLUSTER = bytes(range(16, 32))


# --- It works -------------------------------------------------------------------------------------


def test_two_ends_with_one_token_prove_themselves_to_each_other() -> None:
    c, s = client(), server()

    assert c.feed(run_to_answer(c, s)) == b""

    assert c.done
    assert s.done
    assert (c.peer_role, s.peer_role) == (Role.SCHEDULER, Role.CLIENT)
    assert c.version == s.version == handshake.PROTOCOL_MAX
    assert c.cluster_id == s.cluster_id == CLUSTER
    assert c.bytes_wanted == s.bytes_wanted == 0
    assert c.error is None
    assert s.error is None


@pytest.mark.parametrize(
    ("role", "server_role"),
    [
        (Role.CLIENT, Role.SCHEDULER),
        (Role.WORKER, Role.SCHEDULER),
        (Role.SUPERVISOR, Role.SCHEDULER),
        (Role.VIEWER, Role.SCHEDULER),
        (Role.PEER, Role.SCHEDULER),
        (Role.PEER, Role.WORKER_DATA),
    ],
)
@pytest.mark.parametrize("binding", [b"", BINDING])
def test_every_connecting_role_can_be_accepted(
    role: Role, server_role: Role, binding: bytes
) -> None:
    c = client(role=role, expected_server_role=server_role, channel_binding=binding)
    s = server(server_role=server_role, accepted_roles=(role,), channel_binding=binding)

    c.feed(run_to_answer(c, s))

    assert (c.peer_role, s.peer_role) == (server_role, role)


def test_a_client_that_knows_no_cluster_learns_it_from_the_proved_server() -> None:
    c, s = client(cluster_id=None), server()
    answer = run_to_answer(c, s)

    with pytest.raises(LocalProtocolError, match="not done"):
        c.cluster_id
    c.feed(answer)

    assert c.cluster_id == CLUSTER


@settings(max_examples=40)
@given(data=st.data())
def test_the_handshake_works_at_every_cut_of_the_byte_stream(data: st.DataObject) -> None:
    c, s = client(), server()
    to_server, to_client = bytearray(c.start()), bytearray(s.start())
    wrap = data.draw(st.sampled_from([bytes, bytearray, memoryview]))

    while not (c.done and s.done):
        for end, inbox, outbox in ((s, to_server, to_client), (c, to_client, to_server)):
            n = min(end.bytes_wanted, len(inbox))
            if n:
                n = data.draw(st.integers(1, n))
                chunk = bytes(inbox[:n])
                del inbox[:n]
                outbox += end.feed(wrap(chunk))

    assert not to_server
    assert not to_client
    assert (c.peer_role, s.peer_role) == (Role.SCHEDULER, Role.CLIENT)


def test_the_handshake_works_byte_by_byte() -> None:
    c, s = client(), server()
    s.start()
    message = c.start()
    ends: list[ClientHandshake | ServerHandshake] = [s, c, s, c]

    for end in ends:
        assert end.bytes_wanted == len(message)
        replies = []
        for i in range(len(message)):
            assert end.bytes_wanted == len(message) - i
            replies.append(end.feed(message[i : i + 1]))
        assert not any(replies[:-1])
        message = replies[-1]

    assert c.done
    assert s.done


def test_bytes_after_the_handshake_are_left_to_the_frames() -> None:
    c, s = client(), server()
    stream = run_to_answer(c, s) + b"first frame"

    wanted = c.bytes_wanted
    c.feed(stream[:wanted])

    assert c.done
    assert c.bytes_wanted == 0
    assert stream[wanted:] == b"first frame"


def test_a_server_takes_less_than_a_kibibyte_from_the_unproved() -> None:
    c, s = client(with_user(TOKEN, "ann")), server()
    s.start()
    taken = s.bytes_wanted
    hello = s.feed(c.start())
    taken += s.bytes_wanted
    s.feed(c.feed(hello))

    assert s.done
    assert taken == PREAUTH_BYTES <= 1024


def test_hkdf_agrees_with_rfc_5869() -> None:
    # Test cases 1 and 2 of its appendix A.
    assert hkdf_sha256(
        b"\x0b" * 22, salt=bytes(range(13)), info=bytes(range(0xF0, 0xFA)), nbytes=42
    ) == bytes.fromhex(
        "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"
    )
    assert hkdf_sha256(
        bytes(range(0x50)),
        salt=bytes(range(0x60, 0xB0)),
        info=bytes(range(0xB0, 0x100)),
        nbytes=82,
    ) == bytes.fromhex(
        "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271cb41c65e"
        "590e09da3275600c2f09b8367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87"
    )


# --- Wrong token, role, cluster, version ----------------------------------------------------------


def test_a_wrong_token_is_rejected_and_both_errors_name_its_source() -> None:
    c, s = client(token=OTHER_TOKEN), server()

    answer = run_to_answer(c, s)

    assert not s.done
    assert isinstance(s.error, WrongToken)
    assert s.bytes_wanted == 0
    with pytest.raises(WrongToken, match="does not hold") as at_server:
        s.feed(b"")
    assert at_server.value is s.error
    with pytest.raises(WrongToken, match=r"WEFT_CONNECTION_FILE.*WEFT_TOKEN_FILE"):
        c.feed(answer)
    assert not c.done
    assert c.bytes_wanted == 0


def test_a_server_says_nothing_keyed_to_a_client_without_the_token() -> None:
    # Whatever the client sends, and whatever the token is: the same bytes come back.
    answers = set()
    for token in (TOKEN, b"another token of this server, longer"):
        for wrong in (OTHER_TOKEN, b"a third token that is nobody's"):
            answers.add(run_to_answer(client(token=wrong), server(token=token)))

    assert len(answers) == 1
    assert answers.pop()[REASON + 1 :] == bytes(32)


def test_a_server_without_the_token_cannot_pass_for_one() -> None:
    # It skips the check of the client's proof and answers with the best proof that it can make: the
    # proof of this very exchange, under the token that it has.
    forged = run_to_answer(client(token=OTHER_TOKEN), server(token=OTHER_TOKEN))
    c = client()
    c.start()
    c.feed(server_hello_bytes())

    with pytest.raises(WrongToken, match="did not prove"):
        c.feed(forged)
    assert not c.done


@pytest.mark.parametrize("bit", range(0, 256, 37))
def test_one_wrong_bit_in_a_proof_is_refused_by_either_end(bit: int) -> None:
    def flip(message: bytes) -> bytes:
        i = REASON + 1 + bit // 8
        return patched(message, i, bytes([message[i] ^ 1 << bit % 8]))

    c, s = client(), server()
    s.start()
    proof = c.feed(s.feed(c.start()))
    s.feed(flip(proof))
    assert isinstance(s.error, WrongToken)

    c, s = client(), server()
    with pytest.raises(WrongToken):
        c.feed(flip(run_to_answer(c, s)))


def test_a_wrong_cluster_names_both() -> None:
    c, s = client(cluster_id=OTHER_CLUSTER), server()
    s.start()

    with pytest.raises(WrongCluster) as at_client:
        c.feed(s.feed(c.start()))
    at_server = s.on_eof()

    assert isinstance(at_server, WrongCluster)
    for error in (at_client.value, at_server):
        assert CLUSTER.hex() in str(error)
        assert OTHER_CLUSTER.hex() in str(error)


def test_no_common_version_names_both_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake_messages, "PROTOCOL_MIN", 3)
    monkeypatch.setattr(handshake_messages, "PROTOCOL_MAX", 4)
    newer = client()
    monkeypatch.undo()
    s = server()
    s.start()

    with pytest.raises(WrongVersion) as at_client:
        newer.feed(s.feed(newer.start()))
    at_server = s.on_eof()

    assert isinstance(at_server, WrongVersion)
    for error in (at_client.value, at_server):
        assert "client speaks 3 to 4" in str(error)
        assert "server 2 to 2" in str(error)


def test_a_peer_of_version_1_gets_one_clear_error_from_either_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def old(make: Callable[[], Any]) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(handshake_messages, "PROTOCOL_MIN", 1)
            patch.setattr(handshake_messages, "PROTOCOL_MAX", 1)
            return make()

    for c, s, text in [
        (old(client), server(), "the client speaks 1 to 1, the server 2 to 2"),
        (client(), old(server), "the client speaks 2 to 2, the server 1 to 1"),
    ]:
        s.start()
        with pytest.raises(WrongVersion, match=text):
            c.feed(s.feed(c.start()))
        at_server = s.on_eof()
        assert isinstance(at_server, WrongVersion)
        assert text in str(at_server)
        assert "install the same version" in str(at_server)


@pytest.mark.parametrize(
    ("client_range", "server_range", "agreed"),
    [((1, 3), (2, 5), 3), ((2, 9), (1, 2), 2), ((1, 4), (1, 4), 4)],
)
def test_the_highest_common_version_is_agreed(
    monkeypatch: pytest.MonkeyPatch,
    client_range: tuple[int, int],
    server_range: tuple[int, int],
    agreed: int,
) -> None:
    def speaking(low: int, high: int) -> None:
        monkeypatch.setattr(handshake_messages, "PROTOCOL_MIN", low)
        monkeypatch.setattr(handshake_messages, "PROTOCOL_MAX", high)

    speaking(*client_range)
    c = client()
    speaking(*server_range)
    s = server()

    c.feed(run_to_answer(c, s))

    assert c.version == s.version == agreed


def test_a_man_in_the_middle_cannot_lower_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake_messages, "PROTOCOL_MAX", 3)
    c, s = client(), server()
    s.start()
    lower = (2).to_bytes(2, "big")

    server_hello = s.feed(patched(c.start(), PROTO_MAX, lower))
    s.feed(c.feed(patched(server_hello, PROTO_MAX, lower)))

    assert isinstance(s.error, WrongToken)


def test_a_role_that_a_server_does_not_accept_is_rejected_by_name() -> None:
    c, s = client(role=Role.VIEWER), server()

    answer = run_to_answer(c, s)

    assert isinstance(s.error, WrongRole)
    assert "a viewer connected to a scheduler" in str(s.error)
    assert "client, worker, supervisor" in str(s.error)
    with pytest.raises(WrongRole, match="scheduler at this address does not accept a viewer"):
        c.feed(answer)


def test_a_server_of_another_role_is_refused_by_the_client() -> None:
    c = client(role=Role.PEER, expected_server_role=Role.WORKER_DATA)
    s = server(accepted_roles=(Role.PEER,))
    s.start()

    with pytest.raises(WrongRole, match="is a scheduler, expected was a worker_data"):
        c.feed(s.feed(c.start()))
    assert not s.done


@pytest.mark.parametrize("role", [0, Role.SCHEDULER, Role.WORKER_DATA, 9, 15])
def test_a_role_that_no_client_has_is_rejected(role: int) -> None:
    c, s = client(), server()
    s.start()
    server_hello = s.feed(patched(c.start(), ROLE, bytes([role | Level.ADMIN << 4])))

    answer = s.feed(c.feed(server_hello))

    assert isinstance(s.error, WrongRole)
    with pytest.raises(WrongRole):
        c.feed(answer)


@pytest.mark.parametrize(
    ("reason", "error"),
    [(1, WrongVersion), (2, WrongCluster), (3, WrongRole), (4, WrongToken), (77, HandshakeError)],
)
def test_each_reason_of_a_reject_becomes_its_error(
    reason: int, error: type[HandshakeError]
) -> None:
    c, s = client(), server(token=OTHER_TOKEN)
    answer = run_to_answer(c, s)

    with pytest.raises(error) as caught:
        c.feed(patched(answer, REASON, bytes([reason])))
    assert type(caught.value) is error


# --- Wrong use ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "bad"),
    [
        (client, {"token": b""}),
        (client, {"nonce": b"short"}),
        (client, {"cluster_id": b"short"}),
        (client, {"cluster_id": b""}),
        (client, {"role": Role.SCHEDULER}),
        (client, {"expected_server_role": Role.WORKER}),
        (client, {"channel_binding": bytes(65)}),
        (server, {"token": b""}),
        (server, {"nonce": bytes(33)}),
        (server, {"cluster_id": bytes(16)}),
        (server, {"server_role": Role.CLIENT}),
        (server, {"accepted_roles": (Role.CLIENT, Role.SCHEDULER)}),
        (server, {"channel_binding": bytes(65)}),
    ],
)
def test_arguments_that_would_weaken_it_are_refused(make: type, bad: dict[str, object]) -> None:
    with pytest.raises(LocalProtocolError):
        make(**bad)


def test_an_unproved_peer_s_claims_about_itself_cannot_be_read() -> None:
    c, s = client(), server()
    answer = run_to_answer(c, s)
    for name in ("peer_role", "cluster_id", "version"):
        with pytest.raises(LocalProtocolError, match="not done"):
            getattr(c, name)
    s = server()
    s.start()
    s.feed(client().start())
    for name in ("peer_role", "cluster_id", "version"):
        with pytest.raises(LocalProtocolError, match="not done"):
            getattr(s, name)
    c.feed(answer)
    assert c.peer_role is Role.SCHEDULER


def test_no_repr_and_no_error_shows_the_token() -> None:
    c, s = client(token=OTHER_TOKEN), server()
    answer = run_to_answer(c, s)
    with pytest.raises(WrongToken) as caught:
        c.feed(answer)

    shown = f"{c!r} {s!r} {s.error!r} {caught.value!r}"
    for token in (TOKEN, OTHER_TOKEN):
        assert token.decode() not in shown


@pytest.mark.parametrize(
    ("module", "may_import"),
    [
        (
            handshake,
            {"collections.abc", "hmac", "struct", ".handshake_messages", ".levels", ".roles"},
        ),
        (handshake_messages, {".levels", ".roles", "enum", "struct"}),
    ],
)
def test_the_handshake_imports_neither_io_nor_clocks(
    module: ModuleType, may_import: set[str]
) -> None:
    tree = ast.parse(inspect.getsource(module))
    imported: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            imported.add("." * node.level + (node.module or ""))

    assert imported == {"__future__", "typing", "..errors"} | may_import
