"""What one call has used of its child process, by the kernel's own counts."""

from __future__ import annotations

import contextlib
import re
import resource
import time
from typing import Final

from ...protocol.host.memory import taken_nbytes
from ..slots.usage import MEASURED_NS

#: What is said of a call.
MEASURED: Final = ("cpu_us", "peak_nbytes", "read_nbytes", "written_nbytes")
#: Counts and sizes are read when the last ones are older, nanoseconds.
_FRESH_NS: Final = 1_000_000
#: Written to this file, it makes the largest resident memory begin anew.
_CLEAR_PEAK: Final = (b"5", "/proc/self/clear_refs")
_PEAK: Final = re.compile(rb"^VmHWM:\s*(\d+) kB$", re.MULTILINE)
_DISK: Final = re.compile(rb"^(read|write)_bytes: (\d+)$", re.MULTILINE)


def _read(path: str) -> bytes:
    with contextlib.suppress(OSError), open(path, "rb", buffering=0) as file:
        return file.read(1 << 16)
    return b""


def _cpu_us() -> int:
    used = [resource.getrusage(of) for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return int(sum(one.ru_utime + one.ru_stime for one in used) * 1e6)


def _disk() -> tuple[int, int]:
    found = dict(_DISK.findall(_read("/proc/self/io")))
    return int(found.get(b"read", 0)), int(found.get(b"write", 0))


class CallMeter:
    """Measures the calls of this process, and its memory between them.

    Reading takes as long as a tiny call. So the counts at the begin of a call, and the memory after
    it, may be up to `_FRESH_NS` old.
    """

    def __init__(self) -> None:
        self._counted_at = self._sized_at = -_FRESH_NS
        self._nbytes = 0

    def begin(self, *, is_fresh: bool) -> None:
        """Begin a call; with `is_fresh` the counts are read now."""
        self._begun = time.perf_counter_ns()
        if not is_fresh and self._begun - self._counted_at < _FRESH_NS:
            return
        self._counted_at = self._begun
        value, path = _CLEAR_PEAK
        # Where that does not work, the peak is that of the process so far.
        with contextlib.suppress(OSError), open(path, "wb", buffering=0) as file:
            file.write(value)
        self._cpu_us = _cpu_us()
        self._disk = _disk()

    def nbytes(self) -> int:
        """Return the memory of this process, bytes."""
        now = time.perf_counter_ns()
        if now - self._sized_at >= _FRESH_NS:
            self._sized_at = now
            self._nbytes = taken_nbytes()
        return self._nbytes

    def end(self, *, is_fresh: bool) -> dict[str, int] | None:
        """Return what the call has used: times in microseconds, memory and transfers in bytes.

        None = it was a short one, which is not measured without `is_fresh`.
        """
        if not is_fresh and time.perf_counter_ns() - self._begun < MEASURED_NS:
            return None
        found = _PEAK.search(_read("/proc/self/status"))
        read, written = _disk()
        peak_nbytes = int(found[1]) << 10 if found else 0
        transfers = read - self._disk[0], written - self._disk[1]
        return dict(zip(MEASURED, (_cpu_us() - self._cpu_us, peak_nbytes, *transfers), strict=True))
