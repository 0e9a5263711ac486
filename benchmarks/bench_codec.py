"""The codec alone: frequent messages of one row and of 400 rows, to frames and back.

    python -m benchmarks.bench_codec --repeat 7

Microseconds of CPU time for one message, the least of all repeats; the messages take turns. "to
wire" and "from wire" are the parts of them that do not depend on MessagePack.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import msgpack

from weft.protocol.wire import messages as m
from weft.protocol.wire.codec import WireState
from weft.protocol.wire.framing import Frame, FrameDecoder
from weft.protocol.wire.message import Message, from_wire

_ARGS = b"\x80\x05K\x01\x85\x94."
_RESULT = b"\x80\x05K\x01."
_HEADER_BYTES = 12


def submit(n: int) -> Message:
    """Return what a client sends for `n` calls."""
    return m.SubmitTasks(
        functions=[bytes(16)],
        function_names=["inc"],
        function_blobs=[None],
        function_of=[0] * n,
        keys=[f"inc-0123456789abcdef-{i}" for i in range(n)],
        args=[_ARGS] * n,
        dependencies=[],
        spec_hashes=[],
        options=[{}],
    )


def assign(n: int) -> Message:
    """Return what a worker gets for `n` calls."""
    return m.AssignTasks(
        functions=[bytes(16)],
        function_blobs=[None],
        function_clients=[1],
        function_of=[0] * n,
        keys=[f"inc-0123456789abcdef-{i}" for i in range(n)],
        attempts=list(range(10**15, 10**15 + n)),
        priorities=list(range(10**12, 10**12 + n)),
        args=[_ARGS] * n,
        wanted=[1] * n,
        dependencies=[],
        located_keys=[],
        located_attempts=[],
        located_nbytes=[],
        located_holders=[],
    )


def finished(n: int) -> Message:
    """Return what a worker reports of `n` calls."""
    return m.AttemptsFinished(
        attempts=list(range(10**15, 10**15 + n)),
        nbytes=[28] * n,
        durations_us=[3] * n,
        results=[_RESULT] * n,
    )


def ready(n: int) -> Message:
    """Return what a client gets of `n` calls."""
    keys = [f"inc-0123456789abcdef-{i}" for i in range(n)]
    return m.ResultsReady(keys=keys, results=[_RESULT] * n)


def steps(message: Message) -> dict[str, Callable[[], object]]:
    """Return the measured steps of one message."""
    sender, receiver = WireState(), WireState()
    (parts,) = sender.encode([message])
    data = b"".join(bytes(part) for part in parts)
    frame = Frame(memoryview(data)[_HEADER_BYTES:], [])
    wire = msgpack.unpackb(frame.payload)[4][0]
    decoder = FrameDecoder()

    def decode(one: Frame) -> object:
        receiver.seq_in = 0
        return receiver.decode(one)

    def receive() -> object:
        buffer = decoder.get_buffer(-1)
        buffer[: len(data)] = data
        return [decode(one) for one in decoder.received(len(data))]

    return {
        "to wire": message.to_wire,
        "from wire": lambda: from_wire(wire, []),
        "encode": lambda: sender.encode([message]),
        "decode": lambda: decode(frame),
        "receive": receive,
    }


def run(repeat: int, seconds: float) -> dict[tuple[str, int], dict[str, float]]:
    """Return the least microseconds, by message and number of rows."""
    found: dict[tuple[str, int], dict[str, float]] = {}
    measured: list[tuple[tuple[str, int], str, Callable[[], object]]] = []
    for n in (1, 400):
        for make in (submit, assign, finished, ready):
            message = make(n)
            case = (type(message).__name__, n)
            found[case] = {}
            measured += [(case, name, step) for name, step in steps(message).items()]
    for _ in range(repeat):
        for case, name, step in measured:
            taken = measure(step, seconds)
            found[case][name] = min(taken, found[case].get(name, taken))
    return found


def measure(step: Callable[[], object], seconds: float) -> float:
    """Return the microseconds of one call, from as many calls as fit into some time."""
    n, taken = 1, 0.0
    while taken < seconds:
        n *= 4
        begin = time.process_time()
        for _ in range(n):
            step()
        taken = time.process_time() - begin
    return 1e6 * taken / n


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.bench_codec", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.01, help="for one figure, at least")
    arguments = parser.parse_args()
    found: dict[tuple[str, int], dict[str, Any]] = run(arguments.repeat, arguments.seconds)
    names = list(next(iter(found.values())))
    print(f"| message | rows | {' | '.join(names)} |")
    print("|:--|--:|" + "--:|" * len(names))
    for (kind, n), times in found.items():
        print(f"| {kind} | {n} | {' | '.join(f'{times[name]:.1f}' for name in names)} |")


if __name__ == "__main__":
    main()
