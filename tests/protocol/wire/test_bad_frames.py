"""Messages that weft must not send, and frames that peers must not send."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocol.strategies import any_message
from tests.protocol.wire.codec_kit import envelope, exchange, fields, received, results
from weft.protocol.errors import LocalProtocolError, RemoteProtocolError, StaleEpoch
from weft.protocol.wire.codec import (
    MAX_CONTAINERS,
    MAX_VALUES,
    Envelope,
    WireState,
)
from weft.protocol.wire.framing import Frame, FrameLimits
from weft.protocol.wire.message import MAX_ITEMS, Message
from weft.protocol.wire.messages import (
    Ask,
    DropAttempts,
    GetData,
    Heartbeat,
    KeysData,
    KeysInMemory,
    LocatedKeys,
    Refused,
)
from weft.protocol.wire.payload import Payload

# --- Messages that weft must not send -------------------------------------------------------------


@pytest.mark.parametrize(
    "bad",
    [
        Ask(request=1, name="q", arguments={"x": object()}),
        Ask(request=1, name="q", arguments={"x": 2**64}),
        Ask(request=1, name="q", arguments={"x": {1, 2}}),
        Refused(reason="\ud800"),
        DropAttempts(attempts=[-(2**64)]),
        GetData(request=1, keys=["k" * 1000] * 17_000),
        KeysData(request=1, keys=["k" * 1000] * 17_000, results=[None] * 17_000, missing=[]),
        LocatedKeys(keys=["k"], attempts=[1], nbytes=[1], holders=[["h"] * (MAX_ITEMS + 1)]),
        results(Payload(b"x", [object()])),  # type: ignore[list-item]
    ],
    ids=lambda m: type(m).__name__,
)
def test_a_message_that_cannot_be_sent_is_refused_and_leaves_no_trace(bad: Message) -> None:
    state = WireState()
    with pytest.raises(LocalProtocolError):
        state.encode([results(Payload(b"x", [b"y"])), bad])
    assert state.seq_out == 0
    assert [fields(m) for m in exchange([results(b"fine")])] == [fields(results(b"fine"))]
    (frame,) = state.encode([results(Payload(b"x", [b"y"]))])
    assert [bytes(part) for part in frame[1:]] == [b"x", b"y"]


def test_recursive_value_is_refused() -> None:
    arguments: dict[str, Any] = {}
    arguments["self"] = arguments
    with pytest.raises(LocalProtocolError):
        WireState().encode([Ask(request=1, name="q", arguments=arguments)])


@pytest.mark.parametrize(
    "limits", [FrameLimits(buffer=99), FrameLimits(total=150), FrameLimits(payload=10)]
)
def test_frame_beyond_the_limits_is_refused(limits: FrameLimits) -> None:
    with pytest.raises(LocalProtocolError):
        WireState(limits).encode([results(Payload(bytes(100), [bytes(100)]))])


# --- Frames that peers must not send --------------------------------------------------------------


EMPTY_ARRAYS = (
    b"\x95\x00\x00\x01\x00"
    + b"\xdd\x00\x00\x00\x28"
    + (b"\xdd\x00\x03\xd0\x90" + b"\x90" * 250_000) * 40
)
#: Fifteen megabytes, and each array as long as it may be.
SHORT_STRINGS = (
    b"\x95\x00\x00\x01\x00" + b"\x9f" + (b"\xdd\x00\x04\x00\x00" + b"\xa3ab!" * MAX_ITEMS) * 15
)


def altered(message: Message, **changes: Any) -> bytes:
    """A message as only another program would send it."""
    for name, value in changes.items():
        setattr(message, name, value)
    return envelope(message.to_wire())


def in_memory() -> KeysInMemory:
    return KeysInMemory(keys=["a", "b"], nbytes=[1, 2], holder_of=[0, 1], holders=["x", "y"])


ATTACKS: dict[str, tuple[bytes, str]] = {
    "columns of two lengths": (altered(in_memory(), nbytes=[1]), "nbytes: 1 items for 2 rows"),
    "index beyond its table": (altered(in_memory(), holder_of=[0, 2]), "holder_of points beyond"),
    "index into no table": (altered(in_memory(), holders=[]), "holder_of points beyond"),
    "negative index": (altered(in_memory(), holder_of=[0, -1]), "whole numbers from 0"),
    "nothing": (b"", "incomplete"),
    "truncated": (envelope()[:-1], "incomplete"),
    "more behind": (envelope() + b"\xc0", "extra data"),
    "never-used byte": (b"\xc1", "decoded"),
    "not an array": (msgpack.packb({"epoch": 1}), r"\[epoch"),
    "too short": (msgpack.packb([0, 0, 1, 0]), r"\[epoch"),
    "too long": (msgpack.packb([0, 0, 1, 0, [], 1]), r"\[epoch"),
    "messages are no array": (msgpack.packb([0, 0, 1, 0, {}]), r"\[epoch"),
    "negative number": (envelope(numbers=(0, -1, 1, 0)), "numbers of an envelope"),
    "huge number": (envelope(numbers=(0, 0, 2**63, 0)), "numbers of an envelope"),
    "number is a float": (envelope(numbers=(0, 0, 1.0, 0)), "numbers of an envelope"),
    "number is a bool": (envelope(numbers=(0, 0, True, 0)), "numbers of an envelope"),
    "message is no array": (envelope(7), "starts with its code"),
    "impossible code": (envelope([256]), "message code 256 is not between 1 and 255"),
    "wrong arity": (envelope([Refused.code]), "1 fields expected, 0 came"),
    "array of 4 billion": (b"\xdd\xff\xff\xff\xff", "max_array_len"),
    "map of 4 billion": (b"\xdf\xff\xff\xff\xff", "max_map_len"),
    "bytes of 4 GiB": (b"\xc6\xff\xff\xff\xff", "decoded"),
    "string of 4 GiB": (b"\xdb\xff\xff\xff\xff", "decoded"),
    "extension of 4 GiB": (b"\xc9\xff\xff\xff\xff\x01", "max_ext_len"),
    "long string": (envelope([Refused.code, "x" * (1 << 20)]), "max_str_len"),
    "long map": (envelope([Ask.code, 1, "q", {str(i): 1 for i in range(5000)}]), "max_map_len"),
    "long array": (
        envelope([DropAttempts.code, [0] * (MAX_ITEMS + 1)]),
        "max_array_len",
    ),
    "nested 100000 times": (b"\x91" * 100_000 + b"\xc0", "decoded"),
    "ten megabytes of empty arrays": (EMPTY_ARRAYS, f"more than {MAX_CONTAINERS} arrays"),
    "millions of short strings": (SHORT_STRINGS, f"more than {MAX_VALUES} values"),
    "empty extension": (b"\xc7\x00\x05", "extension type 5"),
    "fixed extension": (b"\xd4\x05a", "max_ext_len"),
    "timestamp": (msgpack.packb(msgpack.Timestamp(2**40)), "max_ext_len"),
    "invalid utf-8": (b"\xa2\xff\xfe", "utf-8"),
    "surrogate": (b"\xa3\xed\xa0\x80", "utf-8"),
    "whole-number map key": (b"\x81\x01\x02", "map key"),
    "array as map key": (b"\x81\x90\x02", "map key"),
    "blob without its buffers": (
        envelope([KeysData.code, 1, ["a"], [[0, 1]], []]),
        "does not carry",
    ),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_attack_gets_a_typed_error(name: str) -> None:
    payload, text = ATTACKS[name]
    with pytest.raises(RemoteProtocolError, match=text) as caught:
        WireState().decode(Frame(memoryview(payload), []))
    # msgpack's own types do not travel on, not even as the cause.
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize(
    ("payload", "most"),
    # Unlimited it is 620 and 250 MB.
    [(EMPTY_ARRAYS, 64 << 20), (SHORT_STRINGS, 80 << 20)],
    ids=["arrays", "strings"],
)
def test_bombs_are_refused_before_they_have_filled_the_memory(payload: bytes, most: int) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(RemoteProtocolError):
            WireState().decode(Frame(memoryview(payload), []))
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


@settings(max_examples=300)
@given(payload=st.binary(max_size=80))
def test_any_bytes_decode_or_get_a_typed_error(payload: bytes) -> None:
    try:
        WireState().decode(Frame(memoryview(payload), []))
    except RemoteProtocolError:
        pass


@settings(max_examples=150)
@given(message=any_message, data=st.data())
def test_damaged_message_decodes_or_gets_a_typed_error(
    message: Message, data: st.DataObject
) -> None:
    (frame,) = received(WireState().encode([message]))
    damaged = bytearray(frame.payload)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        arrived = WireState().decode(Frame(memoryview(damaged), frame.buffers))
    except RemoteProtocolError:
        return
    assert all(isinstance(m, Message) for m in arrived)


# --- The numbers of a connection ------------------------------------------------------------------


def numbers(epoch: int = 0, session: int = 0, seq: int = 1, ack: int = 0) -> Envelope:
    return Envelope(epoch, session, seq, ack, [])


def test_numbers_and_acknowledgements_run_along() -> None:
    a, b = WireState(), WireState()
    ping = [GetData(request=1, keys=[])]
    for i in range(1, 4):
        (frame,) = received(a.encode(ping))
        b.decode(frame)
        (frame,) = received(b.encode(ping))
        a.decode(frame)
        assert (a.seq_out, a.seq_in, a.acked) == (i, i, i)
        assert (b.seq_out, b.seq_in, b.acked) == (i, i, i - 1)


@pytest.mark.parametrize("seq", [0, 1, 3, 2**63 - 1])
def test_frame_out_of_order_is_refused(seq: int) -> None:
    state = WireState()
    state.check(numbers(seq=1))
    with pytest.raises(RemoteProtocolError, match=f"frame {seq} came where frame 2 was expected"):
        state.check(numbers(seq=seq))
    assert state.seq_in == 1


def test_acknowledgement_of_unsent_frames_is_refused() -> None:
    state = WireState()
    state.encode([Heartbeat()])
    state.encode([Heartbeat()])
    with pytest.raises(RemoteProtocolError, match="acknowledged"):
        state.check(numbers(ack=3))
    state.check(numbers(ack=2))
    with pytest.raises(RemoteProtocolError, match="acknowledged"):
        state.check(numbers(seq=2, ack=1))


def test_epoch_and_session_bind_once_they_are_known() -> None:
    state = WireState()
    state.check(numbers(epoch=5, session=9, seq=1))
    state.epoch, state.session = 7, 3
    for stale in (0, 6, 8):
        with pytest.raises(StaleEpoch) as caught:
            state.check(numbers(epoch=stale, session=3, seq=2))
        assert (caught.value.expected, caught.value.got) == (7, stale)
    for session in (0, 2, 4):
        with pytest.raises(RemoteProtocolError, match=f"session {session} came in session 3"):
            state.check(numbers(epoch=7, session=session, seq=2))
    state.check(numbers(epoch=7, session=3, seq=2))
    (frame,) = received(state.encode([Heartbeat()]))
    assert msgpack.unpackb(frame.payload)[:4] == [7, 3, 1, 2]
