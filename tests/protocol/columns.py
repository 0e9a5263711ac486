"""Reads what a browser gets of the task stream, as its script does."""

from __future__ import annotations

import json
import struct
from array import array


def pieces(data):
    """Yield the parts of an answer."""
    while data:
        (n,) = struct.unpack_from("<I", data)
        yield data[4 : 4 + n]
        data = data[4 + n :]


def rows_of(chunk):
    """Return the attempts of a chunk as dicts."""
    (length,) = struct.unpack_from("<I", chunk)
    head = json.loads(chunk[4 : 4 + length])
    at, n = 4 + length, head["n"]

    def column(kind):
        nonlocal at
        found = array(kind)
        assert at % found.itemsize == 0, "a browser reads columns where they lie"
        found.frombytes(chunk[at : at + n * found.itemsize])
        at += n * found.itemsize
        return found

    columns = {"stop": column("d"), "duration": column("f")}
    if "waited" in head["columns"]:
        columns["waited"] = column("f")
    if "fetched" in head["columns"]:
        columns["arrived"], columns["fetched"] = column("f"), column("f")
    ends = column("I")
    lanes = [tuple(head["lanes"][i]) for i in column("I")]
    functions = [head["functions"][i] for i in column("I")]
    if "note" in head["columns"]:
        columns["note"] = [head["notes"][i] for i in column("I")]
    texts = chunk[at:]
    keys = [texts[a:b].decode() for a, b in zip([0, *ends[:-1]], ends, strict=True)]
    raised = dict(head["raised"])
    return [
        {"key": keys[i], "lane": lanes[i], "function": functions[i], "raised": raised.get(i)}
        | {name: values[i] for name, values in columns.items()}
        for i in range(n)
    ]


def read(data):
    """Return the head of an answer, and all attempts in it."""
    head, *chunks = pieces(data)
    return json.loads(head), [row for chunk in chunks for row in rows_of(chunk)]
