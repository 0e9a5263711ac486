"""Would it pay to compress what leaves the memory? Codecs on the buffers that weft spills.

    python -m benchmarks.spill_compression --disk 100 250

Codecs that are not installed are left out: `pip install lz4 zstandard`. Speeds are MB of the value
per second of CPU time of one thread, the best of all rounds; codecs take turns. The rest follows,
for a value that is written once and read once while all cores are busy, so that the codec's time
adds to the disk's: the speeds of the disk, in MB/s, below which packing is as fast, or 1.3 times as
fast; and (time raw / time packed) on disks of given speeds.
"""

from __future__ import annotations

import argparse
import importlib
import math
import pickle
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
import pandas as pd

from .framework import machine
from .framework.driving import ROOT

#: Bytes that are packed at once, as many as the worker writes at once.
STEP: Final = 4 << 20


@dataclass
class Codec:
    """How to pack a step, and to unpack one that had so many bytes; what was found for a value."""

    name: str
    pack: Callable[[Any], bytes]
    unpack: Callable[[bytes, int], bytes]
    nbytes: int = 0
    pack_s: float = math.inf
    unpack_s: float = math.inf


def codecs() -> list[Codec]:
    """Return the codecs that are here."""
    found = [Codec("zlib 1", lambda step: zlib.compress(step, 1), lambda x, _: zlib.decompress(x))]
    try:
        lz4: Any = importlib.import_module("lz4.block")
        fast = partial(lz4.compress, mode="fast", acceleration=8, store_size=False)
        found.append(Codec("lz4 fast 8", fast, lz4.decompress))
        found.append(Codec("lz4", partial(lz4.compress, store_size=False), lz4.decompress))
        zstd: Any = importlib.import_module("zstandard")
        reader = zstd.ZstdDecompressor()
        for level in (-1, 1, 3):
            pack = zstd.ZstdCompressor(level=level).compress
            found.append(Codec(f"zstd {level}", pack, reader.decompress))
    except ImportError as error:
        print(error)
    return found


def values(nbytes: int) -> dict[str, Any]:
    """Return values of about this size, of kinds that tasks have as results."""
    rng = np.random.default_rng(1)
    n, few, rows = nbytes // 8, nbytes // 250, nbytes // 50
    names = np.array([f"customer-{i:05}" for i in range(20_000)])
    chosen = rng.integers(0, len(names), rows)
    sensor = np.sin(np.arange(2 * n) / 5_000) * 20 + rng.normal(0, 0.02, 2 * n)
    frame = pd.DataFrame({"name": names[chosen], "amount": rng.random(rows).round(2) * 1_000})
    frame["kind"] = pd.Categorical.from_codes(chosen % 7, list("abcdefg"))
    frame["at"] = pd.date_range("2026-01-01", periods=rows, freq="s")
    return {
        "float64, random": rng.random(n),
        "float32, a sensor": sensor.astype("f4"),
        "float32, the same, rounded to 0.01": sensor.round(2).astype("f4"),
        "int64, random below 1000": rng.integers(0, 1_000, n),
        "int64, sorted, below 2**40": np.sort(rng.integers(0, 2**40, n)),
        "booleans, 10 % true": rng.random(nbytes) < 0.1,
        "frame of strings, categories, times": frame,
        "list of dicts": [
            {"id": i, "name": str(names[code]), "amount": float(code) / 7, "tags": ["a", str(i)]}
            for i, code in enumerate(chosen[:few])
        ],
    }


def steps_of(value: Any) -> list[memoryview]:
    """Return what is written of a value: its pickle and its buffers, in steps."""
    taken: list[pickle.PickleBuffer] = []
    data = pickle.dumps(value, 5, buffer_callback=taken.append)
    parts = [memoryview(data), *(buffer.raw() for buffer in taken)]
    return [part[i : i + STEP] for part in parts for i in range(0, part.nbytes, STEP)]


def measure(steps: list[memoryview], one: Codec) -> None:
    """Pack and unpack a value once."""
    begin = time.thread_time()
    packed = [*map(one.pack, steps)]
    middle = time.thread_time()
    unpacked = [one.unpack(data, step.nbytes) for data, step in zip(packed, steps, strict=True)]
    one.unpack_s = min(one.unpack_s, time.thread_time() - middle)
    one.pack_s = min(one.pack_s, middle - begin)
    one.nbytes = sum(map(len, packed))
    assert unpacked == steps, one.name


def row(nbytes: int, crc_s: float, one: Codec, disks: list[float]) -> str:
    """Return the figures of a codec; `crc_s` is the time of one checksum of the whole value."""
    left, codec_s, mb = one.nbytes / nbytes, one.pack_s + one.unpack_s, nbytes / 1e6

    def below(gain: float) -> str:  # where raw_s == gain * (left * raw_s + codec_s)
        disk_s = gain * codec_s / (1 - gain * left) - 2 * crc_s if gain * left < 1 else math.inf
        return f"{2 * mb / disk_s:.0f}" if disk_s > 0 else "all"

    cells = [f"{1 / left:.2f}", f"{mb / one.pack_s:.0f}", f"{mb / one.unpack_s:.0f}"]
    raw = [2 * mb / disk + 2 * crc_s for disk in disks]
    cells += [below(1), below(1.3), *(f"{s / (left * s + codec_s):.2f}" for s in raw)]
    return f"{one.name} | {' | '.join(cells)}"


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=16, help="of each value (16)")
    parser.add_argument("--rounds", type=int, default=5, help="the best one counts (5)")
    parser.add_argument("--disk", type=float, nargs="*", default=[100, 250], help="(100 250) MB/s")
    options = parser.parse_args()
    print(machine.headline("Compressing what is spilled", machine.describe(ROOT), {}))
    disks = [f"{disk:.0f} MB/s |" for disk in options.disk]
    print("| value | codec | ratio | pack | unpack | as fast | 1.3 times |", *disks)
    print("|:--|:--|" + "--:|" * (5 + len(options.disk)))
    here = codecs()
    for kind, value in values(options.mib << 20).items():
        steps, tried, crc_s = steps_of(value), [replace(one) for one in here], math.inf
        for _ in range(options.rounds):
            begin = time.thread_time()
            for step in steps:
                zlib.crc32(step)
            crc_s = min(crc_s, time.thread_time() - begin)
            for one in tried:
                measure(steps, one)
        nbytes = sum(step.nbytes for step in steps)
        print(*(f"| {kind} | {row(nbytes, crc_s, one, options.disk)} |" for one in tried), sep="\n")


if __name__ == "__main__":
    main()
