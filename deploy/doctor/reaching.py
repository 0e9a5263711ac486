"""Which worker tries the way to which data ports, and what the failures mean. Pure.

Data goes from worker to worker at ports that the scheduler never uses, so a firewall between two
machines, or an address that only one of them knows, shows nowhere else before a task needs data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ...protocol.wording import counted, listed
from .checks import FAILED, OK, Finding

#: Machines from which it is tried, and ports that each of these tries.
MAX_READERS: Final = 32
MAX_TRIED: Final = 32
#: Lines, and readers that are named in one.
MAX_LINES: Final = 8
_MAX_NAMED: Final = 4
PLACE: Final = "data ports"

Worker = Mapping[str, Any]

_ADVICE: Final = {
    "refused": "the address may not be that of the worker's machine, as others see it: give "
    "--contact-address or --host there; or a firewall rejects the port",
    "no-answer": "a firewall drops the packets: open these ports between the machines, with "
    "--worker-port a range of them; or the address leads elsewhere: --contact-address or --host",
    "name": "add the name to the DNS or to /etc/hosts of those machines, or give another one with "
    "--contact-address",
    "other": "something else answers there, or is in between: a proxy must pass the bytes as they "
    "are",
}


class OutOfReach(NamedTuple):
    """A data port that was tried in vain."""

    reader: Worker
    holder: Worker
    kind: str
    text: str


def choose_tried(workers: Sequence[Worker]) -> list[tuple[Worker, list[Worker]]]:
    """Return which workers try to reach which others.

    One of each machine tries those that follow it in the list, which has one of each machine
    first: so all pairs of up to 33 machines are tried, and of more each machine by 32 others. If
    there is one machine, two workers try each other, and the rest.

    Args:
        workers: those that answer, one of each machine first.
    """
    first = {worker["host"]: i for i, worker in reversed([*enumerate(workers)])}
    readers = sorted(first.values())[:MAX_READERS]
    if len(readers) == 1 and len(workers) > 1:
        readers.append(readers[0] + 1)
    return [
        (workers[i], tried)
        for i in readers
        if (tried := [*workers[i + 1 :], *workers[:i]][:MAX_TRIED])
    ]


def judge_reach(n_tried: int, unreached: Sequence[OutOfReach]) -> list[Finding]:
    """Judge the pairs that were tried: one line for each port and kind of failure."""
    if not unreached:
        text = f"{counted(n_tried, 'pair')} of workers were tried, and all reach each other"
        return [Finding(OK, PLACE, "reach", text)] if n_tried else []
    grouped: dict[tuple[str, str], list[OutOfReach]] = {}
    for found in unreached:
        grouped.setdefault((found.holder["address"], found.kind), []).append(found)
    lines = []
    for (address, kind), group in list(grouped.items())[:MAX_LINES]:
        names = [f"{found.reader['name']} on {found.reader['host']}" for found in group]
        verb = "does" if len(names) == 1 else "do"
        holder = group[0].holder
        text = (
            f"{listed(names[:_MAX_NAMED], len(names))} {verb} not reach {holder['name']} on "
            f"{holder['host']} at {address}: {group[0].text}"
        )
        advice = _ADVICE.get(kind, _ADVICE["other"])
        lines.append(Finding(FAILED, PLACE, "reach", text, advice))
    n_more = len(grouped) - MAX_LINES
    if n_more > 0:
        text = f"{counted(n_more, 'more port')} are out of reach for some workers"
        lines.append(Finding(FAILED, PLACE, "reach", text))
    return lines
