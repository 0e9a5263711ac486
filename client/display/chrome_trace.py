"""A recording in the Trace Event format, which chrome://tracing and Perfetto show. Pure.

A process is a worker, a thread one of its threads. Events of a thread that overlap without lying
within each other break the picture, and the clocks of workers are known to about a millisecond: so
what would overlap is a thread of its own, named after the one that it belongs to.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from ...protocol.wire.keys import text_of
from ..insight.attempt_timing import AttemptTiming
from ..insight.recording import Recorded, Recording, Submissions, recording_of
from .timeline import category_of, natural

#: The process of what is about the whole cluster; those of workers follow.
CLUSTER_PID: Final = 1
#: Threads of a worker are below, what would overlap above. The last is of inputs.
_OVERLAPS_TID: Final = 100_000
INPUTS_TID: Final = 1_000_000
#: The colour of attempts that raised, by the names that the format has.
_RAISED: Final = "terrible"


def chrome_trace(records: Recorded) -> dict[str, Any]:
    """Return a trace of what was recorded, to be written as JSON and opened in a browser.

    Chrome shows it at chrome://tracing, and https://ui.perfetto.dev anywhere. A process is a
    worker, and a thread one of its threads; times are microseconds from the beginning.

        with open("trace.json", "w") as file:
            json.dump(weft.timeline.chrome_trace(stream.data), file)

    Args:
        records: a recording, or records as `get_task_stream` returns them.
    """
    recording = recording_of(records)
    return {**_about(recording), "traceEvents": [*trace_events(recording)]}


def trace_text(recording: Recording) -> Iterator[str]:
    """Yield the parts of the text of a trace, one for each event: none has to hold all of it."""
    yield json.dumps(_about(recording), default=str)[:-1] + ', "traceEvents": [\n'
    divider = ""
    for event in trace_events(recording):
        yield divider + json.dumps(event, default=str)
        divider = ",\n"
    yield "\n]}\n"


def _about(recording: Recording) -> dict[str, Any]:
    return {
        "displayTimeUnit": "ms",
        "otherData": {
            "made_by": "weft timeline",
            "begin_unix_s": recording.begin,
            "end_unix_s": recording.end,
            "missing": "; ".join(recording.lacks()),
        },
    }


def trace_events(recording: Recording) -> Iterator[dict[str, Any]]:
    """Yield the events: first names, then what happened, worker by worker."""
    addresses = {one.worker: one.address for one in recording.timings}
    names = {one.name for one in recording.members if one.category == "worker"}
    workers = sorted({*addresses, *names}, key=natural)
    pids = {name: pid for pid, name in enumerate(workers, CLUSTER_PID + 1)}
    first = _first_time(recording)
    yield from _names_of_process(CLUSTER_PID, "cluster", "")
    for name, pid in pids.items():
        yield from _names_of_process(pid, f"worker {name}", addresses.get(name, ""))
    for member in recording.members:
        yield {
            "ph": "i",
            "s": "g",
            "name": f"{member.category} {member.name} {member.change}".replace("  ", " "),
            "cat": member.category,
            "ts": _us(member.time, first),
            "pid": CLUSTER_PID,
            "tid": 0,
            "args": dict(member.facts),
        }
    submissions = Submissions(recording.changes)
    lanes: dict[tuple[str, int], list[AttemptTiming]] = {}
    for one in recording.timings:
        lanes.setdefault((one.worker, one.thread), []).append(one)
    n_overlaps = dict.fromkeys(pids, 0)
    for worker, thread in sorted(lanes, key=lambda lane: (pids[lane[0]], lane[1])):
        pid = pids[worker]
        for i, lane in enumerate(without_overlaps(lanes[worker, thread], first)):
            tid, name = thread, f"thread {thread}"
            if i:
                tid = _OVERLAPS_TID + n_overlaps[worker]
                n_overlaps[worker] += 1
                name += " (overlap)"
            yield _name("thread_name", pid, tid, name=name)
            yield _name("thread_sort_index", pid, tid, sort_index=2 * thread + bool(i))
            for one in lane:
                yield _complete(one, first, pid, tid, submissions)
    yield from _inputs(recording.timings, first, pids)


def _first_time(recording: Recording) -> float:
    """Return the time that becomes 0: what ran before the recording has its place, too."""
    times = [recording.begin, *(one.start for one in recording.timings)]
    times += [one.transfer[0] for one in recording.timings if one.transfer is not None]
    times += [one.time for one in recording.members]
    return min(times)


def without_overlaps(
    timings: Iterable[AttemptTiming], first: float
) -> Sequence[Sequence[AttemptTiming]]:
    """Return the attempts of one thread as lanes, each without overlaps; mostly it is one."""
    lanes: list[list[AttemptTiming]] = []
    ends: list[int] = []
    for one in sorted(timings, key=lambda timing: (timing.start, timing.stop)):
        start, stop = _us(one.start, first), _us(one.stop, first)
        for i, end in enumerate(ends):
            if end <= start:
                lanes[i].append(one)
                ends[i] = stop
                break
        else:
            lanes.append([one])
            ends.append(stop)
    return lanes


def _us(time: float, first: float) -> int:
    return round((time - first) * 1e6)


def _complete(
    one: AttemptTiming, first: float, pid: int, tid: int, submissions: Submissions
) -> dict[str, Any]:
    start = _us(one.start, first)
    args: dict[str, Any] = {
        "key": text_of(one.key),
        "function": one.function,
        "state": "raised" if one.is_failed else "finished",
        "span": "/".join(one.span),
        "attempt": one.attempt,
        "type": one.type,
        "nbytes": one.nbytes,
    }
    if one.waited:
        args["waited_s"] = one.waited
    if one.transfer is not None:
        args["inputs_s"] = round(one.transfer[1] - one.transfer[0], 6)
    queued = submissions.before(one.key, one.start)
    if queued is not None:
        args["queued_s"] = round(max(one.start - queued, 0.0), 6)
    args = {**one.options, **args}  # such as `meta`
    event = {
        "ph": "X",
        "name": one.function,
        "cat": category_of(one),
        "ts": start,
        "dur": _us(one.stop, first) - start,
        "pid": pid,
        "tid": tid,
        "args": args,
    }
    return {**event, "cname": _RAISED} if one.is_failed else event


def _inputs(
    timings: Sequence[AttemptTiming], first: float, pids: Mapping[str, int]
) -> Iterator[dict[str, Any]]:
    """Yield when workers fetched inputs. Many are fetched at a time: what overlaps is one event."""
    fetching: dict[str, list[AttemptTiming]] = {}
    for one in timings:
        if one.transfer is not None:
            fetching.setdefault(one.worker, []).append(one)
    for worker, some in fetching.items():
        pid = pids[worker]
        yield _name("thread_name", pid, INPUTS_TID, name="inputs fetched")
        yield _name("thread_sort_index", pid, INPUTS_TID, sort_index=INPUTS_TID)
        for since, until, n in _fetching(some):
            start = _us(since, first)
            yield {
                "ph": "X",
                "name": "inputs",
                "cat": "inputs",
                "ts": start,
                "dur": _us(until, first) - start,
                "pid": pid,
                "tid": INPUTS_TID,
                "args": {"attempts": n},
            }


def _fetching(timings: Iterable[AttemptTiming]) -> list[tuple[float, float, int]]:
    """Return when inputs were fetched, without overlaps: start, stop, and for how many attempts."""
    found: list[tuple[float, float, int]] = []
    for start, stop in sorted(one.transfer for one in timings if one.transfer is not None):
        if found and start < found[-1][1]:
            first, last, n = found[-1]
            found[-1] = first, max(last, stop), n + 1
        else:
            found.append((start, stop, 1))
    return found


def _name(what: str, pid: int, tid: int, /, **args: str | int) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": args}


def _names_of_process(pid: int, name: str, address: str) -> Iterator[dict[str, Any]]:
    yield _name("process_name", pid, 0, name=name)
    yield _name("process_sort_index", pid, 0, sort_index=pid)
    if address:
        yield _name("process_labels", pid, 0, labels=address)
