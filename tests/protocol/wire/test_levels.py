"""The chain of tokens, and the handshake's proof of a level, also under attack."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.protocol.errors import HandshakeError, LocalProtocolError, WrongToken
from weft.protocol.wire.handshake import NONCE_BYTES, ClientHandshake, ServerHandshake
from weft.protocol.wire.handshake_messages import (
    NAMED_CLIENT,
    USER,
    HandshakeKind,
    Reason,
    pack_answer,
)
from weft.protocol.wire.levels import (
    Level,
    hkdf_sha256,
    is_user,
    level_of,
    lowered,
    user_of,
    with_user,
)
from weft.protocol.wire.roles import ROLE_LEVELS, Role

ADMIN = b"the token from which all others come"
CLUSTER = bytes(range(16))
TOKENS = {level: lowered(ADMIN, level) for level in Level}
ROLE_BYTE = 9
#: {role: the port that it connects to}
PORTS = dict.fromkeys(ROLE_LEVELS, Role.SCHEDULER) | {Role.PEER: Role.WORKER_DATA}
#: {port: the level of the token that it holds}
HELD = {Role.SCHEDULER: Level.ADMIN, Role.WORKER_DATA: Level.WORKER}

roles = st.sampled_from([*ROLE_LEVELS])
levels = st.sampled_from([*Level])
nonces = st.binary(min_size=NONCE_BYTES, max_size=NONCE_BYTES)


def client(token: bytes, role: Role = Role.CLIENT, nonce: bytes = b"c" * 32) -> ClientHandshake:
    return ClientHandshake(token, CLUSTER, role, PORTS[role], b"", nonce)


def server(
    token: bytes = ADMIN, port: Role = Role.SCHEDULER, nonce: bytes = b"s" * 32
) -> ServerHandshake:
    accepted = [role for role, of in PORTS.items() if of is port]
    made = ServerHandshake(token, CLUSTER, port, accepted, b"", nonce)
    made.start()
    return made


def run(c: ClientHandshake, s: ServerHandshake) -> None:
    """Let both ends talk to the end; raises what the client raises."""
    c.feed(s.feed(c.feed(s.feed(c.start()))))


def stating(hello: bytes, level: int) -> bytes:
    """Return a hello that states another level."""
    role = hello[ROLE_BYTE] & 15
    return hello[:ROLE_BYTE] + bytes([level << 4 | role]) + hello[ROLE_BYTE + 1 :]


# --- The chain ------------------------------------------------------------------------------------


def test_each_token_shows_its_level_and_fits_into_headers_files_and_shells() -> None:
    assert [level_of(TOKENS[level]) for level in Level] == [*Level]
    for level in (Level.VIEW, Level.WORKER, Level.CLIENT):
        text = TOKENS[level].decode()
        assert re.fullmatch(rf"{level.label}\.[A-Za-z0-9_-]{{43}}", text)


@given(token=st.binary(min_size=1, max_size=80), steps=st.lists(levels))
def test_a_chain_of_any_steps_leads_to_the_same_tokens(token: bytes, steps: list[Level]) -> None:
    own = level_of(token)
    made = token
    for level in sorted({min(step, own) for step in steps}, reverse=True):
        made = lowered(made, level)
        assert made == lowered(token, level)
        assert level_of(made) == level


@given(token=st.binary(min_size=16, max_size=80))
def test_no_token_gives_a_higher_one(token: bytes) -> None:
    tokens = {level: lowered(token, level) for level in Level if level <= level_of(token)}
    assert len({*tokens.values()}) == len(tokens)
    for low, high in itertools.combinations(Level, 2):
        with pytest.raises(LocalProtocolError, match=f"role {high.label} cannot be made"):
            lowered(tokens[low], high)
        # No token is a part of a lower one, and none is what a lower one gives when the labels are
        # changed: each step goes through HKDF, whose key is the whole text of the token above.
        assert tokens.get(high, b"none") not in tokens[low]
        for label in Level:
            key = hkdf_sha256(tokens[low], salt=b"weft token", info=label.label.encode())
            assert key not in tokens.values()


@pytest.mark.parametrize(
    "text", [b"view.short", b"admin." + b"x" * 43, b"view." + b"x" * 44, b"VIEW." + b"x" * 43]
)
def test_any_other_text_is_the_token_of_an_admin(text: bytes) -> None:
    assert level_of(text) is Level.ADMIN


# --- The proof ------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ROLE_LEVELS)
@pytest.mark.parametrize("level", Level)
def test_a_role_is_accepted_with_its_level_or_a_higher_one(role: Role, level: Level) -> None:
    port = PORTS[role]
    c, s = client(TOKENS[level], role), server(TOKENS[HELD[port]], port)

    if level >= ROLE_LEVELS[role]:
        run(c, s)
        # The highest that both ends have.
        assert c.level is s.level is min(level, HELD[port])
        assert s.peer_role is role
        return

    with pytest.raises(WrongToken) as caught:
        run(c, s)
    needed = ROLE_LEVELS[role].label
    assert f"needs a token of role {needed}, and this one is of role {level.label}" in str(
        caught.value
    )
    assert f"weft token --role {needed}" in str(caught.value)
    assert isinstance(s.error, WrongToken)
    assert str(s.error) == str(caught.value)
    assert not s.done


def test_a_level_can_be_read_only_when_it_is_proved() -> None:
    c, s = client(ADMIN), server()
    s.feed(c.start())
    for end in (c, s):
        with pytest.raises(LocalProtocolError, match="not done"):
            end.level


@given(own=levels, stated=st.integers(0, 15), role=roles)
def test_no_token_proves_another_level_than_its_own(own: Level, stated: int, role: Role) -> None:
    """A dishonest client states any level, and proves with the token that it has."""
    port = PORTS[role]
    c, s = client(TOKENS[own], role), server(TOKENS[HELD[port]], port)
    honest = min(own, HELD[port])
    hello = stating(c.start(), stated)

    proof = c.feed(s.feed(hello))
    if stated == NAMED_CLIENT:
        proof += USER.pack(b"ann")
    answer = s.feed(proof)

    if stated == honest and own >= ROLE_LEVELS[role]:
        c.feed(answer)
        assert c.done
        assert s.done
    else:
        assert not s.done
        assert isinstance(s.error, WrongToken)
        with pytest.raises(WrongToken):
            c.feed(answer)


@given(own=levels, forged=levels, role=roles)
def test_a_hello_signed_as_another_level_is_refused(own: Level, forged: Level, role: Role) -> None:
    """The dishonest client makes the proof over the changed hello, with the key that it has."""
    port = PORTS[role]
    held = HELD[port]
    if forged == min(own, held) or forged > held:
        return
    c, s = client(TOKENS[own], role), server(TOKENS[held], port)
    c._ours = c._ours._replace(raw=stating(c.start(), forged), level=forged)

    s.feed(c.feed(s.feed(c._ours.raw)))

    assert not s.done
    assert isinstance(s.error, WrongToken)


@given(true=levels, other=levels, role=roles)
def test_a_relay_that_changes_the_level_on_the_way_is_noticed_by_both(
    true: Level, other: Level, role: Role
) -> None:
    port = PORTS[role]
    if true < ROLE_LEVELS[role] or true > HELD[port] or other == true:
        return
    c, s = client(TOKENS[true], role), server(TOKENS[HELD[port]], port)

    answer = s.feed(c.feed(s.feed(stating(c.start(), other))))

    assert not s.done
    with pytest.raises(WrongToken):
        c.feed(answer)


@given(role=roles, nonce=nonces)
def test_a_recorded_proof_of_a_level_is_of_no_use(role: Role, nonce: bytes) -> None:
    port = PORTS[role]
    token = TOKENS[HELD[port]]
    c, s = client(token, role), server(token, port)
    hello = c.start()
    proof = c.feed(s.feed(hello))
    s.feed(proof)
    assert s.done
    if nonce == b"s" * 32:
        return

    later = server(token, port, nonce)
    later.feed(hello)
    later.feed(proof)

    assert isinstance(later.error, WrongToken)
    assert not later.done


@pytest.mark.parametrize("held", [Level.VIEW, Level.WORKER, Level.CLIENT])
def test_a_holder_of_a_lower_token_cannot_pass_for_the_scheduler(held: Level) -> None:
    """It has seen the true scheduler's hello, and proves with every key that it can make."""
    c = client(ADMIN)
    c.start()
    true = server()
    server_hello = true.feed(client(ADMIN).start())
    c.feed(server_hello)
    for level in Level:
        if level > held:
            continue
        impostor, fake = client(TOKENS[level], Role.VIEWER), server(TOKENS[held])
        answer = fake.feed(impostor.feed(fake.feed(impostor.start())))
        with pytest.raises(HandshakeError):
            c.feed(answer)
        assert not c.done
        c = client(ADMIN)
        c.start()
        c.feed(server_hello)


def test_a_port_with_a_lower_token_refuses_what_it_cannot_check() -> None:
    s = server(TOKENS[Level.WORKER], Role.WORKER_DATA)
    c = client(TOKENS[Level.WORKER], Role.PEER)

    answer = s.feed(c.feed(s.feed(stating(c.start(), Level.CLIENT))))

    assert "cannot check a token of role client" in str(s.error)
    with pytest.raises(WrongToken):
        c.feed(answer)


def test_a_data_port_sees_the_token_of_a_worker_and_no_higher_one() -> None:
    c = client(ADMIN, Role.PEER)
    worker = client(TOKENS[Level.WORKER], Role.PEER)
    assert c.start() == worker.start()
    hello = server(TOKENS[Level.WORKER], Role.WORKER_DATA).feed(c._ours.raw)
    assert c.feed(hello) == worker.feed(hello)


@given(
    script=st.lists(
        st.tuples(st.sampled_from(["client", "server"]), levels, st.integers(0, 57), nonces),
        max_size=6,
    ),
    own=levels,
    role=roles,
)
def test_no_script_of_recorded_changed_and_exchanged_messages_raises_the_level(
    script: list[tuple[str, Level, int, bytes]], own: Level, role: Role
) -> None:
    """The attacker holds one token, sees honest handshakes, and mixes their messages with its own.

    Whatever it sends, a server that is done has proved to a peer whose token it has seen whole.
    """
    port = PORTS[role]
    recorded: list[bytes] = []
    for n, (_, level, _, nonce) in enumerate(script):
        honest = client(TOKENS[max(level, ROLE_LEVELS[role])], role, nonce)
        s = server(TOKENS[HELD[port]], port, bytes([n]) * 32)
        hello = honest.start()
        proof = honest.feed(s.feed(hello))
        recorded += [hello, proof, s.feed(proof)]

    target = server(TOKENS[HELD[port]], port)
    mine = client(TOKENS[own], role, b"m" * 32)
    hello = mine.start()
    for kind, level, place, _ in script:
        changed = stating(hello, level) if kind == "client" else hello
        hello = changed[:place] + changed[place : place + 1] + changed[place + 1 :]
    try:
        mine.feed(target.feed(hello))
        for message in recorded:
            if target.error is not None or target.done:
                break
            if len(message) == target.bytes_wanted:
                target.feed(message)
    except HandshakeError:
        pass

    assert not target.done


# --- Users ----------------------------------------------------------------------------------------

users = st.from_regex(r"[A-Za-z0-9_@-][A-Za-z0-9._@-]{0,31}", fullmatch=True)


@given(user=users)
def test_the_token_of_a_user_is_that_of_a_client_and_makes_the_lower_ones(user: str) -> None:
    made = with_user(TOKENS[Level.ADMIN], user)

    assert made == with_user(TOKENS[Level.CLIENT], user)
    assert (level_of(made), user_of(made)) == (Level.CLIENT, user)
    assert lowered(made, Level.CLIENT) == made
    for level in (Level.WORKER, Level.VIEW):
        assert lowered(made, level) == TOKENS[level]


@given(user=users, other=users)
def test_the_token_of_a_user_gives_neither_that_of_another_nor_one_without(
    user: str, other: str
) -> None:
    made = with_user(TOKENS[Level.CLIENT], user)

    with pytest.raises(LocalProtocolError, match="cannot be made from that of user"):
        with_user(made, other)
    with pytest.raises(LocalProtocolError, match="role admin cannot be made"):
        lowered(made, Level.ADMIN)
    assert TOKENS[Level.CLIENT] not in made
    if user != other:
        # Another name before the same secrets proves nothing.
        assert made.replace(user.encode(), other.encode(), 1) != with_user(
            TOKENS[Level.CLIENT], other
        )


@pytest.mark.parametrize("user", ["", ".a", "a" * 33, "a b", "ann/bob", "ü", "a\n"])
def test_other_texts_are_no_names_of_users(user: str) -> None:
    assert not is_user(user)
    with pytest.raises(LocalProtocolError, match="cannot be the name of a user"):
        with_user(TOKENS[Level.CLIENT], user)


@pytest.mark.parametrize("level", [Level.WORKER, Level.VIEW])
def test_a_lower_token_gives_none_of_a_user(level: Level) -> None:
    with pytest.raises(LocalProtocolError, match="role client cannot be made"):
        with_user(TOKENS[level], "ann")


@pytest.mark.parametrize("role", [Role.CLIENT, Role.SUPERVISOR, Role.VIEWER])
@given(user=users)
def test_a_scheduler_is_shown_and_checks_the_user(role: Role, user: str) -> None:
    c, s = client(with_user(TOKENS[Level.ADMIN], user), role), server(TOKENS[Level.ADMIN])

    run(c, s)

    assert c.level is s.level is Level.CLIENT
    assert c.user == s.user == user


def test_a_data_port_is_shown_the_token_of_a_worker() -> None:
    port = Role.WORKER_DATA
    c = client(with_user(TOKENS[Level.ADMIN], "ann"), Role.PEER)
    s = server(TOKENS[Level.WORKER], port)

    run(c, s)

    assert c.level is s.level is Level.WORKER
    assert c.user == s.user == ""


@pytest.mark.parametrize("other", ["bob", "a.n", "ANN"])
def test_another_name_on_the_way_ends_the_connection(other: str) -> None:
    c, s = client(with_user(TOKENS[Level.ADMIN], "ann")), server(TOKENS[Level.ADMIN])
    proof = c.feed(s.feed(c.start()))

    answer = s.feed(proof.replace(b"ann", other.encode()))

    assert isinstance(s.error, WrongToken)
    with pytest.raises(WrongToken):
        c.feed(answer)


def test_bytes_that_are_no_name_end_the_connection_before_any_key_is_made() -> None:
    c, s = client(with_user(TOKENS[Level.ADMIN], "ann")), server(TOKENS[Level.ADMIN])
    proof = c.feed(s.feed(c.start()))

    with pytest.raises(HandshakeError, match="cannot be the name of a user"):
        s.feed(proof.replace(b"ann", b"a\xffn"))


def test_a_server_that_knows_no_users_refuses_them_and_the_error_says_so() -> None:
    c = client(with_user(TOKENS[Level.ADMIN], "ann"))
    s = server(TOKENS[Level.ADMIN])
    c.feed(s.feed(c.start()))

    # As an older scheduler answers: it checks the level, and knows no number 5.
    with pytest.raises(WrongToken, match="scheduler cannot check a token of role client with a"):
        c.feed(pack_answer(HandshakeKind.REJECT, Reason.LEVEL))
