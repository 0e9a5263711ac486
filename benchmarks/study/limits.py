"""The shortest time in which the tasks of a workload can end, whatever runs them. Pure."""

from __future__ import annotations

import math


def time_of_tasks(n_tasks: int, depth: int, seconds: float, n_slots: int) -> float:
    """Return the limit of so many equal tasks, `depth` of which must follow each other."""
    return max(math.ceil(n_tasks / n_slots), depth) * seconds


def time_of_batches(n_tasks: int, n_slots: int, task_s: float, step_s: float) -> float:
    """Return the time of slots that are busy until the last wave of tasks, whose results the client
    takes in one step.
    """
    return math.ceil(n_tasks / n_slots) * task_s + step_s


def time_of_steps(n_tasks: int, n_slots: int, task_s: float, step_s: float) -> float:
    """Return the same for a client that makes one step for each result.

    The results of the last wave are ready together at best, and it takes one after the other.
    """
    end = 0.0
    for number in range(n_tasks):
        ready = (number // n_slots + 1) * task_s
        end = max(end, ready) + step_s
    return end


def time_of_sums(n_tasks: int, n_slots: int, seconds: float) -> float:
    """Return the time of equal tasks for a client that adds what has ended to one sum more.

    Tasks and sums run in the order in which they are submitted, all slots at the same time. What
    ends together is one sum; a single result waits for more.
    """
    n_waiting, n_results, n_rounds = n_tasks, 0, 0
    while n_waiting or n_results > 1:
        if n_results > 1:
            n_waiting += 1
            n_results = 0
        n_started = min(n_waiting, n_slots)
        n_waiting -= n_started
        n_results += n_started
        n_rounds += 1
    return n_rounds * seconds
