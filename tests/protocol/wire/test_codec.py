"""Messages survive the wire, frames stay within their sizes, and bad bytes get a typed error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocol.strategies import CLASSES, any_message, messages_of
from tests.protocol.wire.codec_kit import envelope, exchange, fields, normal, received, results
from weft.protocol.errors import LocalProtocolError, RemoteProtocolError
from weft.protocol.wire import codec
from weft.protocol.wire.codec import (
    TARGET_BYTES,
    WireState,
)
from weft.protocol.wire.framing import Frame, FrameLimits
from weft.protocol.wire.message import MAX_ITEMS, MAX_ROWS, Message
from weft.protocol.wire.messages import (
    AttemptsFinished,
    DropAttempts,
    GetData,
    Heartbeat,
    KeysData,
    Refused,
    SubmitTasks,
)
from weft.protocol.wire.payload import Payload

# --- Round trips ----------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
@settings(max_examples=20)
@given(data=st.data())
def test_every_message_arrives_as_it_was_sent(cls: type[Message], data: st.DataObject) -> None:
    sent = data.draw(messages_of(cls))
    (arrived,) = exchange([sent])
    assert type(arrived) is cls
    assert fields(arrived) == fields(sent)


@settings(max_examples=60)
@given(st.lists(any_message, max_size=6))
def test_messages_arrive_in_order(sent: list[Message]) -> None:
    assert [fields(m) for m in exchange(sent)] == [fields(m) for m in sent]


@settings(max_examples=100)
@given(st.lists(any_message, min_size=1, max_size=6))
def test_a_frame_of_a_few_short_messages_has_the_bytes_of_any_frame(sent: list[Message]) -> None:
    def frames() -> list[list[bytes]]:
        state = WireState()
        state.epoch, state.session, state.seq_out, state.seq_in = 1, 2, 2, 4
        return [[bytes(part) for part in frame] for frame in state.encode(sent)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec, "_FEW", 0)
        expected = frames()
    assert frames() == expected


def joined(parts: Sequence[Message]) -> list[Any]:
    """The fields of the one message that was cut into these."""
    cls = type(parts[0])
    assert {type(part) for part in parts} == {cls}
    cut = {*cls.columns, *cls.optional_columns}
    whole = []
    indexes = dict(cls._indexes)
    tables = {name for table in indexes.values() for name in table}
    for name in cls._names:
        values = [normal(getattr(part, name)) for part in parts]
        if name in indexes:
            # Parts may have less of the table, and so other places in it.
            table = indexes[name]
            rows = [[getattr(p, t)[i] for t in table] for p in parts for i in getattr(p, name)]
            whole.append(normal(rows))
        elif name in cut:
            whole.append([row for value in values for row in value])
        elif name not in tables:
            assert all(value == values[0] for value in values)
            whole.append(values[0])
    return [cls.code, *whole]


def n_rows(message: Message) -> int:
    return len(getattr(message, message.columns[0]))


def repeated(message: Message, times: int) -> Message:
    """The message with its rows several times over."""
    cls = type(message)
    cut = {*cls.columns, *cls.optional_columns}
    values = {name: getattr(message, name) for name in cls._names}
    return cls(**{n: value * times if n in cut else value for n, value in values.items()})


CUT = [
    cls
    for cls in CLASSES
    if cls.columns and "request" not in cls._names and cls.parts is Message.parts
]
WHOLE = [cls for cls in CLASSES if cls not in CUT]


@given(message=st.sampled_from(CUT).flatmap(messages_of), max_rows=st.integers(1, 5))
def test_parts_together_are_the_message(message: Message, max_rows: int) -> None:
    parts = message.parts(max_rows)
    assert joined(parts) == joined([message])
    sizes = [n_rows(part) for part in parts]
    assert max(sizes) <= max_rows
    assert set(sizes[:-1]) <= {max_rows}
    assert (len(parts) == 1) == (n_rows(message) <= max_rows)
    # A short one is not even copied.
    assert len(parts) > 1 or parts[0] is message


@given(message=st.sampled_from(WHOLE).flatmap(messages_of))
def test_requests_answers_and_single_things_are_never_cut(message: Message) -> None:
    (part,) = message.parts(1)
    assert part is message


@pytest.mark.parametrize("cls", CUT, ids=lambda cls: cls.__name__)
@settings(max_examples=3)
@given(data=st.data())
def test_long_message_arrives_in_parts_that_are_the_whole(
    cls: type[Message], data: st.DataObject
) -> None:
    drawn = data.draw(messages_of(cls).filter(n_rows))
    sent = repeated(drawn, 2 * MAX_ROWS)
    arrived = exchange([sent])
    assert len(arrived) == 2 * n_rows(drawn)
    assert joined(arrived) == joined([sent])


def test_half_a_million_attempts_arrive_in_order() -> None:
    attempts = list(range(10**12, 10**12 + 500_000))
    arrived = exchange([Heartbeat(), DropAttempts(attempts=attempts), Refused(reason="x")])
    assert [type(m) for m in (arrived[0], arrived[-1])] == [Heartbeat, Refused]
    assert len(arrived) == 2 + -(-500_000 // MAX_ROWS)
    assert joined(arrived[1:-1]) == [DropAttempts.code, attempts]


def test_large_buffers_are_sent_as_the_objects_they_are() -> None:
    first, second = bytearray(5000), memoryview(bytearray(7000))
    data = bytes(3000)
    (frame,) = WireState().encode([results(Payload(data, [first, second]))])
    assert len(frame) == 4
    assert frame[1] is data
    assert frame[2] is first
    assert frame[3] is second


def test_received_buffers_are_the_frames_own() -> None:
    (frame,) = received(WireState().encode([results(Payload(b"p", [bytes(100_000)]))]))
    (message,) = WireState().decode(frame)
    assert isinstance(message, KeysData)
    (blob,) = message.results
    assert isinstance(blob, Payload)
    assert blob.data is frame.buffers[0]
    assert blob.buffers[0] is frame.buffers[1]


def test_shaped_memoryview_counts_its_bytes() -> None:
    view = memoryview(bytearray(range(240))).cast("I", (6, 10))
    (frame,) = received(WireState().encode([results(Payload(b"", [view]))]))
    assert frame.buffers == [b"", bytearray(range(240))]


def test_nothing_makes_no_frame() -> None:
    state = WireState()
    assert state.encode([]) == []
    assert state.seq_out == 0


# --- Grouping -------------------------------------------------------------------------------------


def test_messages_are_grouped_up_to_a_size() -> None:
    sent = [Refused(reason=f"{i:05}" + "x" * 6_000) for i in range(50)]
    state = WireState()
    frames = state.encode(sent)
    sizes = [len(frame[0]) for frame in frames]
    assert len(frames) == 3
    assert max(sizes) <= TARGET_BYTES + 100
    assert min(sizes[:-1]) > TARGET_BYTES - 7_000
    assert [fields(m) for m in exchange(sent)] == [fields(m) for m in sent]


def test_longer_message_has_a_frame_of_its_own() -> None:
    long = GetData(request=1, keys=[f"key-{i:08}" for i in range(100_000)])
    sent: list[Message] = [Heartbeat(), long, Heartbeat(next_ms=1)]
    frames = WireState().encode(sent)
    assert len(frames) == 3
    assert len(frames[1][0]) > TARGET_BYTES
    assert [fields(m) for m in exchange(sent)] == [fields(m) for m in sent]


def test_buffers_are_numbered_anew_in_the_next_frame() -> None:
    filler = Refused(reason="x" * 60_000)
    sent: list[Message] = []
    for i in range(60):
        sent += [filler, results(Payload(b"d%d" % i, [b"b%d" % i]))]
    assert len(WireState().encode(sent)) > 2
    assert [fields(m) for m in exchange(sent)] == [fields(m) for m in sent]


def test_number_of_buffers_in_a_frame_is_limited() -> None:
    limits = FrameLimits(buffers=10)
    sent = [results(Payload(b"d%d" % i, [b"1", b"2", b"3"])) for i in range(7)]
    frames = WireState(limits).encode(sent)
    assert [len(frame) - 1 for frame in frames] == [8, 8, 8, 4]
    assert [fields(m) for m in exchange(sent, limits)] == [fields(m) for m in sent]
    with pytest.raises(LocalProtocolError, match="12 buffers"):
        WireState(limits).encode([results(*[Payload(b"d", [b"1", b"2", b"3"])] * 3)])


def test_large_plain_blobs_of_a_long_message_travel_out_of_band() -> None:
    n = 600
    sent = AttemptsFinished(
        attempts=list(range(n)),
        nbytes=[60_000] * n,
        durations_us=[1] * n,
        results=[bytes([i % 256]) * 60_000 if i % 3 else b"small" for i in range(n)],
    )
    (frame,) = WireState().encode([sent])
    assert len(frame) == 1 + n - n // 3
    assert len(frame[0]) < 50_000
    (arrived,) = exchange([sent])
    assert fields(arrived) == fields(sent)


def test_few_plain_blobs_stay_in_the_payload() -> None:
    assert len(WireState().encode([results(bytes(60_000), bytes(60_000))])[0]) == 1
    assert len(WireState().encode([results(Payload(b"x" * 100, []))])[0]) == 1


# --- Frames that peers must not send --------------------------------------------------------------


def submit(n: int, args: bytes = b"", dependencies: Sequence[list[str]] = ()) -> SubmitTasks:
    return SubmitTasks(
        functions=[bytes(16)],
        function_names=["f"],
        function_blobs=[b"pickle of f"],
        function_of=[0] * n,
        keys=[f"k{i}" for i in range(n)],
        args=[args] * n,
        dependencies=list(dependencies),
        spec_hashes=[],
        options=[{}],
    )


def sizes_of(sent: Sequence[Message]) -> list[int]:
    """The sizes of the payloads, without the twelve bytes before them."""
    return [len(frame[0]) - 12 for frame in WireState().encode(sent)]


def arrives_whole(message: Message) -> bool:
    payload = envelope(message.to_wire())
    try:
        WireState().decode(Frame(memoryview(payload), []))
    except RemoteProtocolError:
        return False
    return len(payload) <= FrameLimits().payload


@pytest.mark.parametrize(
    ("sent", "is_cut"),
    [
        # Arguments just below the size from which they would travel out of band.
        (submit(MAX_ROWS, bytes(3000)), False),
        (submit(3 * MAX_ROWS, bytes(3000)), True),
        (submit(MAX_ROWS, bytes(3000), [[f"{j:050}" for j in range(120)]] * MAX_ROWS), True),
        # More keys than a column may have, in few bytes; and each row nearly as many.
        (submit(MAX_ROWS, b"", [[f"{j}" for j in range(300)]] * MAX_ROWS), True),
        (submit(3, b"", [[f"{j}" for j in range(200_000)]] * 3), True),
        (submit(1, b"", [["k"] * MAX_ITEMS]), False),
        # Bytes and count at once: several thousand dependencies a row.
        (submit(300, bytes(3000), [[f"{j:010}" for j in range(5000)]] * 300), True),
    ],
    ids=["arguments", "long arguments", "both", "many keys", "long rows", "longest row", "all"],
)
def test_message_of_unusual_rows_is_cut_to_parts_that_arrive(sent: Message, is_cut: bool) -> None:
    assert arrives_whole(sent) is not is_cut
    assert max(sizes_of([sent])) <= FrameLimits().payload
    arrived = exchange([sent])
    assert (len(arrived) > 1) is is_cut
    assert joined(arrived) == joined([sent])


@pytest.mark.parametrize("nbytes", [2000, 4000])
def test_long_answer_is_not_cut(nbytes: int) -> None:
    n = 3 * MAX_ROWS
    sent = KeysData(
        request=7, keys=[f"k{i}" for i in range(n)], results=[bytes(nbytes)] * n, missing=["m"] * n
    )
    # The messages before it in the same batch have other buffers.
    before = results(Payload(b"p", [b"q"]))
    first, arrived = exchange([before, sent])
    assert fields(first) == fields(before)
    assert fields(arrived) == fields(sent)
    (asked,) = exchange([GetData(request=7, keys=sent.keys)])
    assert fields(asked) == [GetData.code, 7, sent.keys, "", ""]


def test_row_that_cannot_be_cut_is_refused_by_its_sender() -> None:
    sent = submit(2, b"", [[], ["k"] * (MAX_ITEMS + 1)])
    with pytest.raises(LocalProtocolError, match=f"SubmitTasks lists {MAX_ITEMS + 1} keys in one"):
        WireState().encode([sent])


def test_buffers_beyond_the_limit_of_a_frame_are_spread_over_several() -> None:
    def finished(n: int, buffers: int, nbytes: int) -> Message:
        blob = Payload(b"p", [bytes([i]) * nbytes for i in range(buffers)])
        return AttemptsFinished(
            attempts=list(range(n)), nbytes=[1] * n, durations_us=[1] * n, results=[blob] * n
        )

    cases: list[tuple[FrameLimits, list[Message]]] = [
        (FrameLimits(buffers=40), [finished(100, 9, 1)]),
        (FrameLimits(total=4000), [finished(10, 2, 1000)]),
        # Each fits, together they do not.
        (FrameLimits(total=4000), [finished(1, 3, 1000)] * 3),
        (FrameLimits(total=4000), [Heartbeat(), finished(1, 1, 3999), finished(1, 1, 9)]),
    ]
    for limits, sent in cases:
        frames = WireState(limits).encode(sent)
        assert len(frames) > 1
        arrived = exchange(sent, limits)
        rest = [m for m in arrived if isinstance(m, AttemptsFinished)]
        whole = [m for m in sent if isinstance(m, AttemptsFinished)]
        assert [b for m in rest for b in normal(m.results)] == [
            b for m in whole for b in normal(m.results)
        ]
        assert [a for m in rest for a in m.attempts] == [a for m in whole for a in m.attempts]
        for frame in frames:
            assert len(frame) - 1 <= limits.buffers
            assert sum(len(part) for part in frame[1:]) <= limits.total


def test_longest_columns_of_lists_are_not_taken_for_an_attack() -> None:
    n = MAX_ITEMS - 100  # four columns, and a few single things
    payload = envelope(submit(n, b"", [[]] * n).to_wire())
    (arrived,) = WireState().decode(Frame(memoryview(payload), []))
    assert arrived == submit(n, b"", [[]] * n)
