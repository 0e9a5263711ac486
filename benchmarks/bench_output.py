"""The cost of the lines that tasks print, in the scheduler, when all workers print all the time.

    python -m benchmarks.bench_output --workers 1000

Each worker sends what its limit permits: 50 lines of standard output and 50 of logging per second,
in five messages. Printed is the CPU time of one such second: to decode the messages, to handle
them, and to encode what the client is sent; and how many lines that is.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time

from weft.protocol.wire import messages as m
from weft.protocol.wire.codec import WireState
from weft.protocol.wire.framing import Frame, frame_header
from weft.protocol.wire.levels import Level
from weft.protocol.wire.roles import Role
from weft.scheduler.core.events import PeerConnected, PeerSent, SchedulerTick
from weft.scheduler.core.features import FEATURES
from weft.scheduler.core.output.output import flow_of
from weft.scheduler.core.state import SchedulerState

from .bench_scheduler import worker_hello

_CLIENT = 1
_FIRST_WORKER = 2
_N_SECONDS = 5
_N_MESSAGES = 5
#: Of one message, half of them of standard output.
_N_LINES = 20


def cluster(n_workers: int) -> SchedulerState:
    """Return a scheduler with workers, and a client that wants the output of its tasks."""
    state = SchedulerState(epoch=1, features=FEATURES)
    state.handle(PeerConnected(_CLIENT, Role.CLIENT, Level.CLIENT), 0.0)
    hello = m.RegisterClient(client_id="c", name="bench", session=1, last_epoch=0, facts={})
    state.handle(PeerSent(_CLIENT, [hello, m.WantOutput(clients=[], level=10)]), 0.0)
    for peer in range(_FIRST_WORKER, _FIRST_WORKER + n_workers):
        state.handle(PeerConnected(peer, Role.WORKER, Level.WORKER), 0.0)
        state.handle(PeerSent(peer, [worker_hello(peer)]), 0.0)
    state.outboxes.clear()
    state.after.clear()
    return state


def frame(number: int) -> memoryview:
    """Return a worker's message with lines for a client, as it comes from the network."""
    message = m.TaskOutput(
        clients=[number] * _N_LINES,
        keys=[f"process-{i:032x}" for i in range(_N_LINES)],
        levels=[m.STDOUT, 20] * (_N_LINES // 2),
        names=["", "program"] * (_N_LINES // 2),
        texts=[f"epoch {i} of 1000, loss 0.123456, accuracy 0.987654" for i in range(_N_LINES)],
    )
    ((head,),) = WireState().encode([message])
    return memoryview(head)[len(frame_header(0)) :]


def second(state: SchedulerState, payload: memoryview, now: float) -> tuple[dict[str, float], int]:
    """Let all workers send for a second; return the CPU seconds, and the lines for the client."""
    decode_s = handle_s = encode_s = 0.0
    n_lines = 0
    for i in range(_N_MESSAGES):
        for peer in state.workers:
            began = time.thread_time()
            received = WireState().decode(Frame(payload, []))
            decoded = time.thread_time()
            state.handle(PeerSent(peer, received), now + i / _N_MESSAGES)
            handled = time.thread_time()
            sent = state.outboxes.pop(_CLIENT, [])
            if sent:
                WireState().encode(sent)
            encode_s += time.thread_time() - handled
            decode_s += decoded - began
            handle_s += handled - decoded
            n_lines += sum(len(one.texts) for one in sent if isinstance(one, m.TaskOutput))
    state.handle(SchedulerTick(), now + 1.0)
    state.outboxes.clear()
    all_s = decode_s + handle_s + encode_s
    return {"decode": decode_s, "handle": handle_s, "encode": encode_s, "all": all_s}, n_lines


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_output")
    parser.add_argument("--workers", type=int, default=1000, metavar="N")
    options = parser.parse_args()
    state = cluster(options.workers)
    (client,) = state.clients.values()
    payload = frame(client.number)
    for ws in state.workers.values():
        flow_of(state).note_shown(ws, client.number, 0.0)  # as if it had run tasks of the client
    gc.collect()
    found = [second(state, payload, 2.0 * i) for i in range(1, _N_SECONDS + 1)]
    n_sent = options.workers * _N_MESSAGES * _N_LINES
    n_lines = statistics.median(n for _, n in found)
    print(f"{options.workers} workers send {n_sent} lines per second; the client gets {n_lines}")
    for name in ("decode", "handle", "encode", "all"):
        seconds = statistics.median(parts[name] for parts, _ in found)
        print(f"{name:8} {seconds * 1e3:8.1f} ms per second")


if __name__ == "__main__":
    main()
