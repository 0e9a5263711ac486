"""The work of the clients of a round: a graph that a seed draws, and its functions.

The value of a task is a digest of its number and its inputs' values, so a serial run, which neither
sleeps nor fails, computes every result. The functions run on workers, which import this module.
"""

from __future__ import annotations

import hashlib
import os
import random
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: The kinds of a task beside the plain one, and the fraction of all tasks of that kind.
KINDS = {"flaky": 0.03, "failing": 0.004, "cutting": 0.01, "impure": 0.03}
#: The fraction of the tasks with a large value, and the bytes of such a value.
LARGE_PART = 0.03
LARGE_NBYTES = (70_000, 4_000_000)
#: Inputs are mostly among the tasks that were drawn last, so that there are chains.
NEAR = 60


@dataclass(frozen=True)
class Call:
    """One task. `inputs` are positions of earlier calls of the same graph."""

    number: int
    kind: str
    milliseconds: int
    nbytes: int
    inputs: tuple[int, ...]
    #: whether the client keeps the future, and so wants the result
    is_wanted: bool
    #: flaky ones raise so many times and are submitted with so many retries
    n_failures: int


class Flaky(Exception):
    """Raised by a task that succeeds when it is tried again."""


class Failing(Exception):
    """Raised by a task that always fails."""


def draw(seed: int, client: int, n: int) -> list[Call]:
    """Return the graph of one client; the first tenth of it is the same for all clients."""
    rng = random.Random(f"graph {seed}")
    calls: list[Call] = []
    hopeless: set[int] = set()
    for i in range(n):
        if i == n // 10:
            rng = random.Random(f"graph {seed} {client}")
        kind = "plain"
        chance = rng.random()
        for name, part in KINDS.items():
            chance -= part
            if chance < 0:
                kind = name
                break
        n_inputs = 20 if rng.random() < 0.01 else rng.choice((0, 0, 1, 1, 1, 2, 2, 3, 5))
        chosen = []
        for _ in range(min(i, n_inputs)):
            near = rng.random() < 0.7
            position = rng.randrange(max(0, i - NEAR) if near else 0, i)
            # A failure spreads to all below it, so few tasks may have one above them.
            if position not in hopeless or rng.random() < 0.02:
                chosen.append(position)
        inputs = tuple(dict.fromkeys(chosen))
        if kind == "failing" or not hopeless.isdisjoint(inputs):
            hopeless.add(i)
        is_large = rng.random() < LARGE_PART
        # Equal for both clients where the task is, and else a number that no other task has.
        number = i if i < n // 10 else i * 64 + client
        calls.append(
            Call(
                number=number,
                kind=kind,
                milliseconds=rng.randint(0, 20),
                nbytes=rng.randint(*LARGE_NBYTES) if is_large else 0,
                inputs=inputs,
                is_wanted=rng.random() < 0.7 or i >= n - 10,
                n_failures=rng.randint(1, 2) if kind == "flaky" else 0,
            )
        )
    return calls


def value_of(seed: int, number: int, nbytes: int, inputs: tuple[bytes, ...]) -> bytes:
    """Return the value of a task: a digest, repeated if the value is to be large."""
    digest = hashlib.blake2b(struct.pack("<qq", seed, number), digest_size=32)
    for value in inputs:
        digest.update(value)
    content = digest.digest()
    return (content * (nbytes // len(content) + 1))[:nbytes] if nbytes else content


def serial(seed: int, calls: list[Call]) -> list[str]:
    """Run all calls here, one after the other; return each result as `described` writes it."""
    values: list[bytes | Exception] = []
    for call in calls:
        inputs: list[bytes] = []
        failure: Exception | None = None
        for position in call.inputs:
            value = values[position]
            if isinstance(value, bytes):
                inputs.append(value)
            else:
                failure = failure or value
        if failure is None and call.kind == "failing":
            failure = Failing(call.number)
        values.append(failure or value_of(seed, call.number, call.nbytes, tuple(inputs)))
    return [described(value) for value in values]


def described(value: Any) -> str:
    """Write a result or an exception so that equal ones are equal and different ones are not.

    Of several failed inputs any one may be the reason, so failures are described by their class.
    """
    if isinstance(value, bytes):
        return f"{len(value)} bytes, {hashlib.blake2b(value, digest_size=16).hexdigest()}"
    if isinstance(value, Failing):
        return "Failing"
    return f"{type(value).__name__}: {value}"


# -- the functions of tasks -----------------------------------------------------------------------
def plain(seed: int, number: int, milliseconds: int, nbytes: int, *inputs: bytes) -> bytes:
    """Take some time, half of it computing."""
    end = time.perf_counter() + milliseconds / 2000
    while time.perf_counter() < end:
        pass
    time.sleep(milliseconds / 2000)  # workload
    return value_of(seed, number, nbytes, inputs)


def flaky(
    folder: str, n: int, seed: int, number: int, milliseconds: int, nbytes: int, *inputs: bytes
) -> bytes:
    """Raise the first `n` times, counted in a file of `folder`."""
    with open(Path(folder, str(number)), "ab") as file:
        file.write(b".")
        file.flush()
        tries = os.fstat(file.fileno()).st_size
    if tries <= n:
        raise Flaky(number, tries)
    return plain(seed, number, milliseconds, nbytes, *inputs)


def failing(number: int, milliseconds: int, *inputs: bytes) -> None:
    """Raise, every time."""
    time.sleep(milliseconds / 1000)  # workload
    raise Failing(number)


def cutting(
    spared: tuple[int, ...], seed: int, number: int, milliseconds: int, nbytes: int, *inputs: bytes
) -> bytes:
    """Cut the connections of this worker to other data ports, in the middle of their data.

    Connections to `spared` ports are those to the scheduler, which the proxy cuts.
    """
    for connection in _connections():
        with connection, suppress(OSError):
            if not {connection.getsockname()[1], connection.getpeername()[1]} & set(spared):
                connection.shutdown(socket.SHUT_RDWR)
    return plain(seed, number, milliseconds, nbytes, *inputs)


def _connections() -> Iterator[socket.socket]:
    """Yield a copy of each open TCP connection of this process."""
    for name in os.listdir("/dev/fd"):
        try:
            copy = os.dup(int(name))
        except OSError:
            continue  # closed meanwhile
        try:
            connection = socket.socket(fileno=copy)
        except OSError:
            os.close(copy)  # no socket
            continue
        if connection.family == socket.AF_INET and _is_connected(connection):
            yield connection
        else:
            connection.close()


def _is_connected(connection: socket.socket) -> bool:
    with suppress(OSError):  # it listens
        connection.getpeername()
        return True
    return False
