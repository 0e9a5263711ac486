"""One client of a round, in a process of its own: `python -m tests.trouble.client`.

Prints lines of JSON: `{"submitted": ...}`, `{"done": n}` now and then, and at the end, which comes
with the last result or when a line can be read from standard input, `{"report": {...}}`.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import threading
from typing import Any

import weft

from . import graph
from .graph import Call

#: Calls are submitted in bursts, so that submission, too, meets trouble.
BURST = 100
PAUSE_S = 0.3
#: How often a client prints its progress.
TELL_S = 0.5
#: Missing or wrong results that are named one by one.
MAX_NAMED = 100


def submit(
    client: weft.Client, options: argparse.Namespace, calls: list[Call]
) -> dict[int, weft.Future]:
    """Submit all calls; return the futures of those that are wanted, by position."""
    futures: list[weft.Future] = []
    for position, call in enumerate(calls):
        if position % BURST == 0:
            threading.Event().wait(PAUSE_S)
        inputs = [futures[i] for i in call.inputs]
        name, seed = call.kind, options.seed
        rest = (seed, call.number, call.milliseconds, call.nbytes, *inputs)
        if name == "flaky":
            future = client.submit(
                graph.flaky, options.folder, call.n_failures, *rest, retries=call.n_failures
            )
        elif name == "failing":
            future = client.submit(graph.failing, call.number, call.milliseconds, *inputs)
        elif name == "cutting":
            future = client.submit(graph.cutting, tuple(options.spare), *rest)
        else:
            future = client.submit(graph.plain, *rest, pure=name != "impure")
        futures.append(future)
    return {i: futures[i] for i, call in enumerate(calls) if call.is_wanted}


_saying = threading.Lock()


class Run:
    """The results that have come so far."""

    def __init__(self, expected: list[str]) -> None:
        self.expected = expected
        self.wanted: dict[int, weft.Future] = {}
        self.done: dict[int, str] = {}
        self.lock = threading.Lock()
        self.is_over = False

    def report(self) -> None:
        """Print the report, once, and end the process at once: threads may hang."""
        with self.lock:
            if self.is_over:
                return
            self.is_over = True
            done = dict(self.done)
        missing = [i for i in self.wanted if i not in done]
        wrong = [i for i, what in done.items() if what != self.expected[i]]
        report: dict[str, Any] = {
            "wanted": len(self.wanted),
            "done": len(done),
            "n_missing": len(missing),
            "n_wrong": len(wrong),
            "missing": [
                [i, self.wanted[i].key, self.wanted[i].status] for i in missing[:MAX_NAMED]
            ],
            "wrong": [
                [i, self.wanted[i].key, done[i], self.expected[i]] for i in wrong[:MAX_NAMED]
            ],
        }
        try:
            say(report=report)
        finally:
            os._exit(0)  # also if the reader has ended

    def tell(self) -> None:
        """Print the number of results now and then."""
        while not self.is_over:
            say(done=len(self.done))
            threading.Event().wait(TELL_S)

    def on_input(self) -> None:
        """Report when a line comes, or the end of the input."""
        sys.stdin.readline()
        self.report()


def say(**what: Any) -> None:
    """Print one line of JSON."""
    with _saying:  # several threads do
        print(json.dumps(what), flush=True)


def main() -> None:
    """Submit, wait and compare."""
    parser = argparse.ArgumentParser(prog="python -m tests.trouble.client", description=__doc__)
    parser.add_argument("--address", required=True)
    parser.add_argument("--connection-file", required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--number", type=int, required=True)
    parser.add_argument("--tasks", type=int, required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--spare", type=int, nargs="*", default=[])
    options = parser.parse_args()
    logging.basicConfig(format="%(asctime)s %(name)s %(levelname)s: %(message)s", level="DEBUG")
    logging.getLogger("asyncio").setLevel("WARNING")
    calls = graph.draw(options.seed, options.number, options.tasks)
    run = Run(graph.serial(options.seed, calls))
    for target in (run.on_input, run.tell):
        threading.Thread(target=target, daemon=True).start()
    client = weft.Client(
        options.address,
        connection_file=options.connection_file,
        name=f"client-{options.number}",
        timeout=60,
        reconnect_timeout=3600,
    )
    run.wanted = submit(client, options, calls)
    say(submitted=len(calls), wanted=len(run.wanted))
    positions: dict[str, list[int]] = {}
    for position, future in run.wanted.items():
        positions.setdefault(future.key, []).append(position)
    for future, result in weft.as_completed(
        {future.key: future for future in run.wanted.values()}.values(),
        with_results=True,
        raise_errors=False,
    ):
        with run.lock:
            for position in positions[future.key]:
                run.done[position] = graph.described(result)
    run.report()


if __name__ == "__main__":
    main()
