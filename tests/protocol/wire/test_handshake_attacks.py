"""Handshakes that somebody replays, reflects, changes or fills with garbage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.protocol.wire.handshake_kit import (
    BINDING,
    CLUSTER_ID,
    KIND,
    PROTO_MAX,
    PROTO_MIN,
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
    WrongToken,
)
from weft.protocol.wire import handshake
from weft.protocol.wire.handshake import NONCE_BYTES
from weft.protocol.wire.levels import Level
from weft.protocol.wire.roles import Role

HELLO_BYTES = 58


def claim(role: Role, level: int = Level.ADMIN) -> bytes:
    """The byte of a hello that states role and level."""
    return bytes([level << 4 | role])


# --- Attacks --------------------------------------------------------------------------------------


def test_a_replayed_client_is_refused() -> None:
    c, s = client(), server()
    s.start()
    hello = c.start()
    proof = c.feed(s.feed(hello))
    s.feed(proof)
    assert s.done

    later = server(nonce=b"t" * NONCE_BYTES)
    later.start()
    later.feed(hello)
    later.feed(proof)

    assert not later.done
    assert isinstance(later.error, WrongToken)


def test_a_replayed_server_is_refused() -> None:
    c, s = client(), server()
    s.start()
    server_hello = s.feed(c.start())
    server_proof = s.feed(c.feed(server_hello))
    assert s.done

    later = client(nonce=b"d" * NONCE_BYTES)
    later.start()
    later.feed(server_hello)

    with pytest.raises(WrongToken):
        later.feed(server_proof)


def test_a_client_refuses_its_own_messages() -> None:
    c = client()
    hello = c.start()
    with pytest.raises(HandshakeError, match="where a hello was expected"):
        c.feed(hello)


def test_a_client_refuses_its_own_proof_in_a_server_s_message() -> None:
    c, s = client(), server()
    s.start()
    proof = c.feed(s.feed(c.start()))

    # As it was sent, and with the kind byte of a server's proof.
    with pytest.raises(HandshakeError, match="where a proof was expected"):
        c.feed(proof)
    c, s = client(), server()
    s.start()
    server_hello = s.feed(c.start())
    proof = c.feed(server_hello)
    with pytest.raises(WrongToken):
        c.feed(patched(proof, KIND, b"\x04"))


def test_a_hello_reflected_with_its_roles_changed_proves_nothing() -> None:
    # The attacker has no token: it returns the client's hello as if it were a server's.
    c = client()
    hello = c.start()
    reflected = patched(patched(hello, KIND, b"\x02"), ROLE, bytes([Role.SCHEDULER]))
    proof = c.feed(reflected)

    with pytest.raises(WrongToken):
        c.feed(patched(proof, KIND, b"\x04"))


@pytest.mark.parametrize("offset", [PROTO_MAX + 1, ROLE, CLUSTER_ID, CLUSTER_ID + 16, 57])
@pytest.mark.parametrize("direction", ["client", "server"])
def test_a_hello_changed_on_its_way_is_noticed(direction: str, offset: int) -> None:
    # The change keeps each hello acceptable by itself: another role of the same port, another
    # range, no cluster; only the proofs can tell.
    def change(hello: bytes) -> bytes:
        if offset == ROLE:
            return patched(hello, ROLE, claim(Role.WORKER))
        if offset == CLUSTER_ID:
            return patched(hello, CLUSTER_ID, bytes(16))
        return patched(hello, offset, bytes([hello[offset] + 1]))

    c, s = client(), server()
    s.start()
    hello = c.start()
    server_hello = s.feed(change(hello) if direction == "client" else hello)
    try:
        answer = s.feed(c.feed(change(server_hello) if direction == "server" else server_hello))
    except HandshakeError:
        assert not c.done
        return

    assert isinstance(s.error, WrongToken)
    with pytest.raises(WrongToken):
        c.feed(answer)


@pytest.mark.parametrize("server_binding", [b"", b"\x22" * 32])
def test_a_relayed_handshake_fails_because_the_channels_differ(server_binding: bytes) -> None:
    # The man in the middle passes every byte on unchanged, between two TLS connections.
    c, s = client(channel_binding=BINDING), server(channel_binding=server_binding)

    answer = run_to_answer(c, s)

    assert isinstance(s.error, WrongToken)
    with pytest.raises(WrongToken, match="proxy"):
        c.feed(answer)


def test_a_proxy_is_no_cause_of_a_wrong_token_where_there_is_no_tls() -> None:
    c, s = client(TOKEN[::-1], channel_binding=b""), server(channel_binding=b"")
    answer = run_to_answer(c, s)
    assert "proxy" not in str(s.error)
    with pytest.raises(WrongToken) as caught:
        c.feed(answer)
    assert "proxy" not in str(caught.value)


def test_a_proof_for_one_role_is_none_for_another() -> None:
    # Every role has its own key, so the same transcript would still not do.
    keys = {handshake._role_key(TOKEN, level, role) for role in Role for level in Level}
    assert len(keys) == len(Role) * len(Level)

    c, s = client(role=Role.CLIENT), server()
    s.start()
    server_hello = s.feed(patched(c.start(), ROLE, claim(Role.WORKER)))
    s.feed(c.feed(server_hello))
    assert isinstance(s.error, WrongToken)


# --- Garbage --------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [client, server])
@pytest.mark.parametrize(
    ("first_bytes", "said"),
    [
        (b"GET / HTTP/1.1\r\n", "HTTP"),
        (b"HTTP/1.1 400 Bad Request", "HTTP"),
        (b"\x16\x03\x01\x02\x00\x01", "tls://"),
        (b"\x15\x03\x03\x00\x02\x02", "tls://"),
        (b"\x00" * 16, "began with"),
        (b"WEFx", "began with"),
        (b"\n", "began with"),
    ],
)
def test_a_peer_of_another_protocol_is_recognised_by_its_first_bytes(
    make: type, first_bytes: bytes, said: str
) -> None:
    end = make()
    end.start()

    with pytest.raises(HandshakeError, match="does not speak weft") as caught:
        end.feed(first_bytes)

    assert said in str(caught.value)
    assert end.error is caught.value
    assert end.bytes_wanted == 0
    assert end.on_eof() is caught.value


@given(garbage=st.binary(min_size=1, max_size=HELLO_BYTES), keep=st.integers(0, HELLO_BYTES))
def test_garbage_never_makes_either_end_done_or_raises_anything_else(
    garbage: bytes, keep: int
) -> None:
    # `keep` bytes of a true hello, so that the garbage is met at every depth.
    for end, true in (
        (client(), server_hello_bytes()),
        (server(), client().start()),
    ):
        end.start()
        stream = true[:keep] + garbage + bytes(200)
        try:
            while end.bytes_wanted:
                n = end.bytes_wanted
                end.feed(stream[:n])
                stream = stream[n:]
        except HandshakeError:
            assert end.error is not None
        assert not end.done
        with pytest.raises(LocalProtocolError):
            end.peer_role


@pytest.mark.parametrize(("low", "high"), [(0, 0), (0, 1), (2, 1), (65535, 0)])
def test_an_empty_version_range_is_refused(low: int, high: int) -> None:
    span = low.to_bytes(2, "big") + high.to_bytes(2, "big")
    s = server()
    s.start()
    with pytest.raises(HandshakeError, match="empty version range"):
        s.feed(patched(client().start(), PROTO_MIN, span))

    c = client()
    c.start()
    with pytest.raises(HandshakeError, match="empty version range"):
        c.feed(patched(server_hello_bytes(), PROTO_MIN, span))


def test_a_server_hello_without_a_cluster_is_refused() -> None:
    c = client(cluster_id=None)
    c.start()
    with pytest.raises(HandshakeError, match="no cluster id"):
        c.feed(patched(server_hello_bytes(), CLUSTER_ID, bytes(16)))


@pytest.mark.parametrize("kind", [0, 1, 2, 4, 5, 200])
def test_a_client_that_sends_no_proof_is_refused_without_an_answer(kind: int) -> None:
    c, s = client(), server()
    s.start()
    proof = c.feed(s.feed(c.start()))

    with pytest.raises(HandshakeError, match="where a proof was expected"):
        s.feed(patched(proof, KIND, bytes([kind])))
    assert not s.done


def test_a_proof_with_a_reason_in_it_is_refused() -> None:
    c, s = client(), server()
    answer = run_to_answer(c, s)
    with pytest.raises(HandshakeError, match="where a proof was expected"):
        c.feed(patched(answer, REASON, b"\x01"))


@pytest.mark.parametrize("n", [0, 1, 4, HELLO_BYTES - 1])
def test_a_truncated_hello_ends_in_an_error_about_that(n: int) -> None:
    s = server()
    s.start()
    assert s.feed(client().start()[:n]) == b""
    assert f"{n} bytes into its hello" in str(s.on_eof())

    c = client()
    c.start()
    assert c.feed(server_hello_bytes()[:n]) == b""
    error = c.on_eof()
    assert f"{n} bytes into its hello" in str(error)
    assert "tls://" in str(error)
    with pytest.raises(HandshakeError) as caught:
        c.feed(b"")
    assert caught.value is error


def test_a_truncated_proof_ends_in_an_error_that_says_so() -> None:
    c, s = client(), server()
    s.start()
    proof = c.feed(s.feed(c.start()))

    assert s.feed(proof[:-1]) == b""

    assert "before it proved" in str(s.on_eof())
    assert "before it answered" in str(c.on_eof())


def test_feeding_more_bytes_than_wanted_is_a_bug_and_consumes_nothing() -> None:
    s = server()
    hello = client().start()
    with pytest.raises(LocalProtocolError, match="wanted 0"):
        s.feed(hello)
    s.start()
    with pytest.raises(LocalProtocolError, match=f"wanted {HELLO_BYTES}"):
        s.feed(hello + b"!")
    with pytest.raises(LocalProtocolError, match=f"wanted {HELLO_BYTES}"):
        s.feed(memoryview(bytearray(4 * HELLO_BYTES)).cast("I"))

    assert s.bytes_wanted == HELLO_BYTES
    assert s.error is None
    assert len(s.feed(hello)) == HELLO_BYTES
