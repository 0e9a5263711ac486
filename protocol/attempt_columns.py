"""Attempts as columns of numbers, which a browser reads without parsing. Pure.

A *chunk* is what one reading of the task stream has brought, made once for all browsers:

    u32     length of the header
    header  JSON: {"n": rows, "lanes": [[host, worker, address, thread], ...],
            "functions": [name, ...],
            "raised": [[row, type], ...], "disk": [[host, worker, address, start, stop, bytes,
            1 = read], ...], "columns": [name, ...]}, with spaces up to a multiple of 8
    f64[n]  stop      seconds since 1970, by the scheduler's clock
    f32[n]  duration  microseconds, without those in which the attempt waited
    f32[n]  waited    microseconds; this and the next two only if the header names them
    f32[n]  arrived, fetched   microseconds before the stop; 0 = no input was fetched
    u32[n]  key_end   where the key ends in the bytes of all keys
    u32[n]  lane, and u32[n]  function
    u32[n]  note      a number in the "notes" of the header; only if the header names it
    bytes   the keys in UTF-8

All numbers are little-endian. Lanes and functions are numbered within their chunk, so that each can
be read without those before it. Keys stay bytes: a browser makes a text of the one it points at.
"""

from __future__ import annotations

import json
import struct
import sys
from array import array
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Any, Final

_LENGTH: Final = struct.Struct("<I")


class AttemptColumns:
    """The columns of a chunk, as they grow."""

    def __init__(self) -> None:
        self.lanes: dict[tuple[str, str, str, int], int] = {}
        self.functions: dict[str, int] = {}
        self.raised: list[tuple[int, str]] = []
        self.disk: list[tuple[Any, ...]] = []
        self.keys: list[bytes] = []
        self.stops = array("d")
        self.durations, self.waits = array("f"), array("f")
        self.arrivals, self.fetches = array("f"), array("f")
        self.lane_of, self.function_of = array("I"), array("I")
        #: Of each attempt something to read, if they have that.
        self.notes: dict[str, int] = {}
        self.note_of = array("I")

    def add(self, report: Mapping[str, Any], to_unix_s: float) -> None:
        """Add the rows of a report, as `task_times` has it.

        Attempts that the scheduler had taken back are left out.

        Args:
            report: of one worker.
            to_unix_s: added to its times, it makes them seconds since 1970.
        """
        place, functions, lanes = (
            (report["host"], report["worker"], report["address"]),
            self.functions,
            self.lanes,
        )
        numbers = [functions.setdefault(name, len(functions)) for name in report["functions"]]
        self.disk += [
            (*place, to_unix_s + start, to_unix_s + stop, *more)
            for start, stop, *more in report["disk"]
        ]
        raised = dict(report["raised"])
        none = [0] * len(report["keys"])
        rows = zip(
            report["keys"],
            report["function_of"] or none,
            report["threads"] or none,
            report["ended_us"],
            report["durations_us"],
            report["waited_us"] or none,
            report["arrived_us"] or none,
            report["fetched_us"] or none,
            strict=True,
        )
        for row, (key, function, thread, ended, duration, waited, came, got) in enumerate(rows):
            if not key:
                continue
            if row in raised:
                self.raised.append((len(self.keys), raised[row]))
            self.keys.append(key.encode("utf-8", "replace"))
            self.stops.append(to_unix_s + ended / 1e6)
            self.durations.append(duration)
            self.waits.append(waited)
            self.arrivals.append(ended - came if got else 0)
            self.fetches.append(ended - got if got else 0)
            self.lane_of.append(lanes.setdefault((*place, thread), len(lanes)))
            self.function_of.append(numbers[function])

    def to_bytes(self) -> bytes:
        """Return the chunk."""
        optional = {"waited": [self.waits], "fetched": [self.arrivals, self.fetches]}
        present = {name: some for name, some in optional.items() if any(map(any, some))}
        header = {
            "n": len(self.keys),
            "lanes": [*self.lanes],
            "functions": [*self.functions],
            "raised": self.raised,
            "disk": self.disk,
            "columns": [*present, *(["note"] if self.notes else [])],
            **({"notes": [*self.notes]} if self.notes else {}),
        }
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-(len(text) + _LENGTH.size) % 8)
        numbers: list[array[Any]] = [self.stops, self.durations]
        numbers += (one for some in present.values() for one in some)
        numbers += [array("I", accumulate(map(len, self.keys))), self.lane_of, self.function_of]
        numbers.append(self.note_of)
        if sys.byteorder == "big":
            for column in numbers:
                column.byteswap()
        parts = [_LENGTH.pack(len(text)), text, *(one.tobytes() for one in numbers), *self.keys]
        return b"".join(parts)


def answer_of(head: Mapping[str, Any], chunks: Iterable[bytes]) -> bytes:
    """Return what a browser gets: a head in JSON, and chunks, each after its length."""
    parts = [json.dumps(head).encode(), *chunks]
    return b"".join(piece for part in parts for piece in (_LENGTH.pack(len(part)), part))
