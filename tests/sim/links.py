"""Connections between simulated processes: FIFO both ways, delayed, stalled, and broken.

As with TCP, a prefix of the sent data arrives, in order, and each end is notified of the end of
the connection in its own time. In a part of the runs every message goes through the real frames
(`WireState`, `FrameDecoder`), numbers and all; in the others it is copied, so that two processes
never share an object.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

from weft.protocol.wire.codec import WireState
from weft.protocol.wire.framing import MEMORY_BYTES, FrameDecoder
from weft.protocol.wire.message import Message
from weft.protocol.wire.messages import Heartbeat, Welcome, WorkersAlive, WorkerStatus
from weft.protocol.wire.payload import Payload

from .world import World

#: All decoders of a run may share their receive memory: each uses it at once.
_memory = bytearray(MEMORY_BYTES)

#: Messages that repeat for ever, and only show that the sender lives.
KEEP_ALIVE = (Heartbeat, WorkersAlive, WorkerStatus)


class Timing:
    """The delays of the network, in seconds."""

    def __init__(self, latency: float, jitter: float, p_stall: float, stall: float) -> None:
        self.latency = latency
        self.jitter = jitter
        self.p_stall = p_stall
        self.stall = stall

    def draw(self, world: World) -> float:
        """Return the delay of one frame."""
        delay = self.latency + world.rng.random() * self.jitter
        if world.chance(self.p_stall):
            world.probes["stall"] += 1
            delay += world.rng.random() * self.stall
        return delay


class End(Protocol):
    """The receiver of a connection's messages."""

    def on_messages(self, link: Link, messages: list[Message]) -> None:
        """Handle messages that arrived."""

    def on_closed(self, link: Link) -> None:
        """Handle the loss of the connection; called once, and not at the end that closed it."""


class _Side:
    """One end, and the frames on their way to it."""

    def __init__(self, end: End, *, wire: bool) -> None:
        self.end = end
        self.wire = WireState() if wire else None
        self.decoder = FrameDecoder(memory=_memory) if wire else None
        #: It sends and receives nothing any more.
        self.is_closed = False
        #: Frames on their way to it.
        self.incoming: deque[Any] = deque()
        #: Nothing arrives earlier.
        self.ready_at = 0.0


class Link:
    """A connection between two ends, numbered 0 (it connected) and 1 (it accepted)."""

    def __init__(self, world: World, timing: Timing, ends: tuple[End, End], *, wire: bool) -> None:
        self.world = world
        self.timing = timing
        self.sides = [_Side(end, wire=wire) for end in ends]
        self.is_broken = False

    def send(self, side: int, messages: Sequence[Message]) -> None:
        """Send from one end; messages sent into a broken connection are lost."""
        mine, other = self.sides[side], self.sides[1 - side]
        if mine.is_closed or not messages:
            return
        if mine.wire is not None:
            # Encode first: it counts frames, even those that are lost.
            frames: list[Any] = [
                b"".join(bytes(buffer) for buffer in frame) for frame in mine.wire.encode(messages)
            ]
        else:
            frames = [[copied(message) for message in messages]]
        if self.is_broken:
            return
        is_work = not all(isinstance(message, KEEP_ALIVE) for message in messages)
        for frame in frames:
            arrival = max(self.world.now + self.timing.draw(self.world), other.ready_at)
            other.ready_at = arrival
            other.incoming.append(frame)
            self.world.at(arrival - self.world.now, self._deliver, 1 - side, is_work=is_work)

    def _deliver(self, side: int) -> None:
        mine = self.sides[side]
        if not mine.incoming:
            return  # cut off by a break
        frame = mine.incoming.popleft()
        if mine.is_closed:
            return
        if mine.wire is None or mine.decoder is None:
            mine.end.on_messages(self, frame)
            return
        for n in range(0, len(frame), MEMORY_BYTES // 2):
            part = frame[n : n + MEMORY_BYTES // 2]
            while part:
                room = mine.decoder.get_buffer(-1)
                taken = min(len(room), len(part))
                room[:taken] = part[:taken]
                part = part[taken:]
                for whole in mine.decoder.received(taken):
                    messages = mine.wire.decode(whole)
                    if messages and isinstance(messages[0], Welcome):
                        mine.wire.epoch = messages[0].epoch
                        mine.wire.session = messages[0].session
                    mine.end.on_messages(self, messages)

    def set_numbers(self, side: int, epoch: int, session: int) -> None:
        """From here on frames of this end carry these numbers (with real frames)."""
        wire = self.sides[side].wire
        if wire is not None:
            wire.epoch, wire.session = epoch, session

    def break_(self, delays: tuple[float, float] | None = None) -> None:
        """Lose a suffix of the frames on their way, and notify both ends, each at its own time."""
        if self.is_broken:
            return
        self.is_broken = True
        for side, mine in enumerate(self.sides):
            if mine.is_closed:
                continue
            n_kept = self.world.rng.randrange(len(mine.incoming) + 1)
            while len(mine.incoming) > n_kept:
                mine.incoming.pop()
            delay = delays[side] if delays else self.timing.draw(self.world)
            # Not before the frames that still arrive.
            at_least = mine.ready_at - self.world.now if mine.incoming else 0.0
            self.world.at(max(delay, at_least), self._tell_closed, side)

    def close(self, side: int) -> None:
        """End the connection from one end; frames that it sent before still arrive."""
        mine, other = self.sides[side], self.sides[1 - side]
        mine.is_closed = True
        if self.is_broken:
            return
        self.is_broken = True
        delay = max(self.timing.draw(self.world), other.ready_at - self.world.now)
        self.world.at(delay, self._tell_closed, 1 - side)

    def _tell_closed(self, side: int) -> None:
        mine = self.sides[side]
        if not mine.is_closed:
            mine.is_closed = True
            mine.incoming.clear()
            mine.end.on_closed(self)


def copied(message: Message) -> Message:
    """Return a message that shares nothing that can change with `message`."""
    cls: Any = type(message)
    return cls(**{name: _copied(getattr(message, name)) for name in message._names})  # type: ignore[no-any-return]


def _copied(value: Any) -> Any:
    kind = type(value)
    if kind is list:
        return [_copied(item) if type(item) in (list, dict, Payload) else item for item in value]
    if kind is dict:
        return {name: _copied(item) for name, item in value.items()}
    if kind is Payload:
        return value.detached()
    return value
