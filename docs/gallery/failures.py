"""Failures: a flaky service, a bad input, a call that hangs, and a worker that dies."""

import os
import random
import time

import weft


def ask(n):
    """A service that is overloaded two times out of three."""
    if random.random() < 2 / 3:
        raise ConnectionError("busy")
    return n * n


def parse(text):
    return int(text)


def hang():
    while True:
        time.sleep(0.01)


def crash_once(marker):
    """End the whole worker process at the first call, as a crash in a C extension would."""
    if not os.path.exists(marker):
        open(marker, "w").close()
        os._exit(1)
    return "computed by another process"


with weft.Client(n_workers=2, threads_per_worker=1) as client:
    # Errors that pass: run again, with pauses that grow.
    patiently = weft.Retries(50, delay="1 ms", max_delay="20 ms")
    answers = client.map(ask, range(20), retries=patiently)
    print("service:", sum(client.gather(answers)))

    # Errors that stay: the original exception, for this future only. The others are not affected.
    numbers = client.map(parse, ["1", "2", "three", "4"])
    print("numbers:", client.gather(numbers, errors="skip"))
    error = numbers[2].exception()
    print(f"failed: {type(error).__name__}: {error}")
    print("its input's readers fail too:", client.submit(sum, numbers).exception() is not None)

    # A time limit for each attempt; the function is interrupted.
    hanging = client.submit(hang, timeout="300 ms")
    print("hangs:", type(hanging.exception()).__name__)

    # The process of a worker dies: what ran there runs elsewhere, and nobody is asked.
    survivor = client.submit(crash_once, os.path.abspath("marker"))
    print("crash:", survivor.result())
    print("its attempts:", len(survivor.attempts()))

    # Failed for a reason that is mended now: run again on request.
    late = client.submit(os.path.getsize, os.path.abspath("late.txt"))
    print("late:", type(late.exception()).__name__, end=", ")
    with open("late.txt", "w") as file:
        file.write("here")
    late.retry()
    print("then", late.result())
