"""Messages to frames and back: the envelope, its numbers, and MessagePack with every limit set.

A frame's payload is `[epoch, session, seq, ack, messages]`: which start of the scheduler and which
session it belongs to (both 0 before `Welcome`), its number on this connection (1, 2, 3, ...), the
last number that its sender has received, and messages as `message.Message.to_wire` makes them. A
`Payload` (a pickle and its out-of-band buffers) becomes `[first buffer, number of buffers]`, while
its bytes travel behind the payload, neither joined nor copied; blobs that are plain bytes stay
where they are and cost nothing extra, unless their message would be longer than a megabyte.

A core: no socket, no clock. A peer's mistakes are `RemoteProtocolError`, our own are
`LocalProtocolError`; msgpack's errors never leave this module.

Why an attacker's small bytes cannot become large memory: a payload has a limit (framing.py),
arrays, maps and strings have limits, and the number of arrays and maps in one payload has one,
because ten megabytes of empty arrays take 700 MB; so has the number of values in them, because ten
megabytes of short strings take 200. Counting costs a call for each array, so payloads too short to
do harm are decoded without.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgpack

from ..errors import LocalProtocolError, RemoteProtocolError, StaleEpoch
from .framing import Frame, FrameLimits, frame_header
from .message import MAX_FACTS, MAX_ITEMS, MAX_ROWS, MAX_TEXT_CHARS, Message, from_wire
from .payload import Buffer, Payload, buffer_nbytes

#: Messages are put into one frame up to this size, so that a receiver can begin early and no
#: allocation is large; a longer message has a frame of its own.
TARGET_BYTES: Final = 1 << 17
#: A message that is longer than this has its larger plain blobs as buffers.
_LONG_BYTES: Final = 1 << 20
#: Below this size data is cheaper inside the payload than as a buffer of its own.
_INLINE_BYTES: Final = 4 << 10
#: A message that would be too long, and cannot be cut, has its blobs from this size on as buffers.
_SHORT_BYTES: Final = 256
#: A message that is no longer has no map beyond the limit.
_FEW_FACTS_BYTES: Final = 2 * MAX_FACTS
#: Up to this many messages that are short are packed at once.
_FEW: Final = 8
_ARRAY32: Final = struct.Struct(">BI")

_MAX_NUMBER: Final = (1 << 63) - 1
_MAX_STR_BYTES: Final = 4 * MAX_TEXT_CHARS
#: Most arrays and maps in one payload: two columns of lists at their full length, and some more.
MAX_CONTAINERS: Final = 2 * MAX_ITEMS + (1 << 14)
#: Most items of all arrays and maps in one payload: more than any message or megabyte of them has.
MAX_VALUES: Final = 4 * MAX_ITEMS
#: Payloads up to this size cannot hold enough arrays to matter (about 5 MB).
_UNCOUNTED_BYTES: Final = 64 << 10

_LIMITS: Final = FrameLimits()


class Envelope(NamedTuple):
    """A decoded and checked frame."""

    epoch: int
    session: int
    seq: int
    ack: int
    messages: list[Message]


# --- Encoding -------------------------------------------------------------------------------------


class _Encoder(threading.local):
    """Packs messages and collects the buffers of their payloads, for one frame at a time.

    One per thread, because msgpack's packer holds a megabyte of memory and is not thread-safe.
    """

    def __init__(self) -> None:
        self.packer = msgpack.Packer(default=self._default)
        #: Buffers of the current frame, in the order of their references. Empty between calls.
        self.buffers: list[Buffer] = []

    def pack(self, message: Message, least: int = _INLINE_BYTES) -> bytes:
        """Pack a message; a long one has plain blobs from this many bytes on as buffers."""
        n_before = len(self.buffers)
        wire = message.to_wire()
        packed: bytes = self.packer.pack(wire)
        if len(packed) > _LONG_BYTES:
            del self.buffers[n_before:]
            packed = self.packer.pack(_spilled(wire, least))
        return packed

    def _default(self, value: object) -> Any:
        if not isinstance(value, Payload):
            raise TypeError(f"a message cannot hold a {type(value).__name__}")
        if not value.buffers and type(value.data) is bytes and len(value.data) < _INLINE_BYTES:
            return value.data
        start = len(self.buffers)
        self.buffers.append(value.data)
        self.buffers += value.buffers
        return [start, 1 + len(value.buffers)]


_encoder = _Encoder()


def _spilled(wire: list[Any], least: int) -> list[Any]:
    """Move the larger plain blobs of a long message out of band: `Blobs` columns hold either."""
    return [
        [
            # A view, because bytes as short as some of these may be would be put in again.
            Payload(memoryview(item), ()) if type(item) is bytes and len(item) >= least else item
            for item in column
        ]
        if type(column) is list
        else column
        for column in wire
    ]


def _long_frames(
    messages: Sequence[Message], epoch: int, session: int, seq: int, ack: int, limits: FrameLimits
) -> list[list[Buffer]]:
    """Make the frames of messages of any number and size."""
    encoder = _encoder
    buffers = encoder.buffers
    frames: list[list[Buffer]] = []
    group: list[bytes] = []
    group_nbytes = group_total = 0
    todo = [part for message in messages for part in message.parts(MAX_ROWS)]
    todo.reverse()
    try:
        while todo:
            message = todo.pop()
            n_before = len(buffers)
            least = _INLINE_BYTES
            packed = encoder.pack(message)
            if message._maps and len(packed) > _FEW_FACTS_BYTES:
                _check_maps(message)
            refers = len(buffers) > n_before
            total = sum(map(buffer_nbytes, buffers[n_before:])) if refers else 0
            if _is_too_long(message, len(packed), len(buffers) - n_before, total, limits):
                halves = _halves(message)
                if halves:
                    del buffers[n_before:]
                    todo.extend(reversed(halves))
                    continue
                _check_row(message)
                if len(packed) > limits.payload:
                    # The last resort, for an answer of thousands of short blobs.
                    del buffers[n_before:]
                    least = _SHORT_BYTES
                    packed = encoder.pack(message, least)
                    refers = len(buffers) > n_before
                    total = sum(map(buffer_nbytes, buffers[n_before:]))
            if group and (
                group_nbytes + len(packed) > TARGET_BYTES
                or len(buffers) > limits.buffers
                or group_total + total > limits.total
            ):
                numbers = (epoch, session, seq + len(frames), ack)
                frames.append(_frame(encoder, numbers, group, buffers[:n_before], limits))
                group, group_nbytes, group_total = [], 0, 0
                buffers.clear()
                if refers:
                    # In the new frame its buffers have other numbers.
                    packed = encoder.pack(message, least)
            group.append(packed)
            group_nbytes += len(packed)
            group_total += total
        if group:
            numbers = (epoch, session, seq + len(frames), ack)
            frames.append(_frame(encoder, numbers, group, buffers[:], limits))
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        # A packer that has raised keeps the bytes it had written.
        encoder.packer.reset()
        raise LocalProtocolError(f"a message cannot be sent: {error}") from None
    finally:
        buffers.clear()
    return frames


def _short_frame(
    messages: Sequence[Message], numbers: tuple[int, int, int, int], limits: FrameLimits
) -> bytes | None:
    """Return the one frame of a few short messages; None if it may be more, or is wrong."""
    wires = []
    for message in messages:
        wire = message.short_wire()
        if wire is None:
            return None
        wires.append(wire)
    packer = _encoder.packer
    try:
        packed: bytes = packer.pack((*numbers, wires))
    except (ValueError, TypeError, OverflowError, RecursionError):
        packer.reset()
        return None  # the way of longer messages finds it again, and says what is wrong
    nbytes = len(packed)
    if nbytes > TARGET_BYTES or nbytes > limits.payload or not wires:
        return None
    if nbytes > _FEW_FACTS_BYTES and any(message._maps for message in messages):
        return None  # a map in it may be too large
    return frame_header(nbytes) + packed


def _is_too_long(
    message: Message, nbytes: int, n_buffers: int, total: int, limits: FrameLimits
) -> bool:
    """Return whether to halve a message whose rows have thousands of dependencies or buffers."""
    return (
        (nbytes > _LONG_BYTES and nbytes > limits.payload // 2)
        or n_buffers > limits.buffers
        or total > limits.total
        # No key is shorter than two bytes, so this is seldom counted.
        or (nbytes > 2 * MAX_ITEMS and message.n_listed_keys() > MAX_ITEMS)
    )


def _check_row(message: Message) -> None:
    """Refuse a message that cannot be cut any more and that the receiver would refuse."""
    n_listed = message.n_listed_keys()
    if n_listed > MAX_ITEMS:
        raise LocalProtocolError(
            f"a {type(message).__name__} lists {n_listed} keys in one row, more than the limit of "
            f"{MAX_ITEMS}"
        )


def _check_maps(message: Message) -> None:
    """Refuse a map that the receiver would refuse."""
    n = message.largest_map()
    if n > MAX_FACTS:
        raise LocalProtocolError(
            f"a {type(message).__name__} has a map of {n} entries, more than the limit of "
            f"{MAX_FACTS}"
        )


def _halves(message: Message) -> list[Message]:
    if not message.columns:
        return []
    n = len(getattr(message, message.columns[0]))
    parts = message.parts(-(-n // 2)) if n > 1 else []
    return parts if len(parts) > 1 else []


def _frame(
    encoder: _Encoder,
    numbers: tuple[int, int, int, int],
    group: list[bytes],
    buffers: list[Buffer],
    limits: FrameLimits,
) -> list[Buffer]:
    # An array of five items; the placeholder of the last, the array of messages, is cut off.
    head = encoder.packer.pack((*numbers, None))[:-1]
    n = len(group)
    array = bytes((0x90 | n,)) if n < 16 else _ARRAY32.pack(0xDD, n)
    nbytes = len(head) + len(array) + sum(map(len, group))
    if nbytes > limits.payload:
        raise LocalProtocolError(
            f"a message of {nbytes} bytes is longer than the limit of {limits.payload}; send large "
            "data as payloads, or fewer rows at a time"
        )
    lengths = list(map(buffer_nbytes, buffers))
    if lengths and (
        len(lengths) > limits.buffers or max(lengths) > limits.buffer or sum(lengths) > limits.total
    ):
        raise LocalProtocolError(
            f"{len(lengths)} buffers of {sum(lengths)} bytes, the largest {max(lengths)}, are more "
            f"than the limits of {limits.buffers}, {limits.total} and {limits.buffer}"
        )
    return [b"".join([frame_header(nbytes, lengths), head, array, *group]), *buffers]


# --- Decoding -------------------------------------------------------------------------------------


def _refuse_ext(code: int, _data: object) -> object:
    raise ValueError(f"extension type {code}")


class _ContainerBudget:
    __slots__ = ("_left", "_values_left")

    def __init__(self) -> None:
        self._left = MAX_CONTAINERS
        self._values_left = MAX_VALUES

    def __call__(self, container: Any) -> Any:
        self._left -= 1
        self._values_left -= len(container)
        if self._left < 0:
            raise ValueError(f"more than {MAX_CONTAINERS} arrays and maps")
        if self._values_left < 0:
            raise ValueError(f"more than {MAX_VALUES} values")
        return container


def _unpack(payload: memoryview) -> Any:
    nbytes = payload.nbytes
    # One hook for both: called with each finished list and with each finished dict.
    counter = _ContainerBudget() if nbytes > _UNCOUNTED_BYTES else None
    try:
        return msgpack.unpackb(
            payload,
            raw=False,
            strict_map_key=True,
            use_list=True,
            list_hook=counter,
            object_hook=counter,
            ext_hook=_refuse_ext,
            max_str_len=_MAX_STR_BYTES,
            max_bin_len=nbytes,
            max_array_len=MAX_ITEMS,
            max_map_len=MAX_FACTS,
            max_ext_len=0,
        )
    except (ValueError, TypeError, RecursionError, OverflowError, msgpack.UnpackException) as error:
        # Only the beginning, because msgpack's text may quote what the peer sent.
        text = str(error)[:200] or type(error).__name__
        raise RemoteProtocolError(f"a payload cannot be decoded: {text}") from None


def _decode(frame: Frame) -> tuple[int, int, int, int, list[Message]]:
    """Decode a frame and check everything in it except the envelope's numbers (see `WireState`).

    The fields are those of an `Envelope`; making that takes as long as a small message.

    Raises:
        RemoteProtocolError: it is not a valid frame.
    """
    value = _unpack(frame.payload)
    if type(value) is not list or len(value) != 5 or type(value[4]) is not list:
        raise RemoteProtocolError("a payload is [epoch, session, seq, ack, messages]")
    epoch, session, seq, ack, wires = value
    if not (
        type(epoch) is type(session) is type(seq) is type(ack) is int
        and 0 <= epoch <= _MAX_NUMBER
        and 0 <= session <= _MAX_NUMBER
        and 0 <= seq <= _MAX_NUMBER
        and 0 <= ack <= _MAX_NUMBER
    ):
        raise RemoteProtocolError("the numbers of an envelope are from 0 to 2**63 - 1")
    buffers = frame.buffers
    return epoch, session, seq, ack, [from_wire(wire, buffers) for wire in wires]


# --- The numbers of one connection ----------------------------------------------------------------


class WireState:
    """Numbers the frames sent on one connection and checks the received ones.

    `epoch` and `session` are 0 until the shell learns them (a client from `Welcome`, the scheduler
    by deciding them). From then on every frame must carry them, in both directions.
    """

    __slots__ = ("acked", "epoch", "limits", "seq_in", "seq_out", "session")

    def __init__(self, limits: FrameLimits = _LIMITS) -> None:
        self.limits = limits
        self.epoch = 0
        self.session = 0
        #: Number of the last frame sent and received; 0 = none yet.
        self.seq_out = 0
        self.seq_in = 0
        #: The last of our frames that the peer has acknowledged. acked <= seq_out.
        self.acked = 0

    def encode(self, messages: Sequence[Message]) -> list[list[Buffer]]:
        """Make the next frames, each `[header and payload, buffer, buffer, ...]`, in this order.

        The buffers are the ones that the messages hold: they must not change until they are sent.

        Raises:
            LocalProtocolError: a message exceeds a limit or has a value that msgpack cannot pack;
                none of the messages should be sent then, and nothing has changed.
        """
        epoch, session, seq, ack = self.epoch, self.session, self.seq_out + 1, self.seq_in
        if len(messages) <= _FEW:
            frame = _short_frame(messages, (epoch, session, seq, ack), self.limits)
            if frame is not None:
                self.seq_out = seq
                return [[frame]]
        frames = _long_frames(messages, epoch, session, seq, ack, self.limits)
        self.seq_out += len(frames)
        return frames

    def decode(self, frame: Frame) -> list[Message]:
        """Decode the next frame and check its numbers.

        Raises:
            StaleEpoch: it belongs to another start of the scheduler.
            RemoteProtocolError: it is invalid, or has the wrong session or number.
        """
        epoch, session, seq, ack, messages = _decode(frame)
        if (
            epoch == self.epoch
            and session == self.session
            and seq == self.seq_in + 1
            and self.acked <= ack <= self.seq_out
        ):
            self.seq_in = seq
            self.acked = ack
        else:
            self.check(Envelope(epoch, session, seq, ack, messages))
        return messages

    def check(self, envelope: Envelope) -> None:
        """Check the numbers of a frame, and note them if they are right."""
        if self.epoch and envelope.epoch != self.epoch:
            raise StaleEpoch(self.epoch, envelope.epoch)
        if self.session and envelope.session != self.session:
            raise RemoteProtocolError(
                f"a frame of session {envelope.session} came in session {self.session}"
            )
        if envelope.seq != self.seq_in + 1:
            raise RemoteProtocolError(
                f"frame {envelope.seq} came where frame {self.seq_in + 1} was expected"
            )
        if not self.acked <= envelope.ack <= self.seq_out:
            raise RemoteProtocolError(
                f"frame {envelope.ack} was acknowledged; {self.acked} were before, "
                f"{self.seq_out} were sent"
            )
        self.seq_in = envelope.seq
        self.acked = envelope.ack
