"""What one call has used of its child process, by the kernel's own counts."""

from __future__ import annotations

import contextlib
import re
import resource
from typing import Final

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
    """Measures one call, from when it is made on."""

    def __init__(self) -> None:
        #: The peak is that of the call; else that of the process, up to the end of the call.
        self.is_peak_own = False
        value, path = _CLEAR_PEAK
        with contextlib.suppress(OSError), open(path, "wb", buffering=0) as file:
            file.write(value)
            self.is_peak_own = True
        self._cpu_us = _cpu_us()
        self._disk = _disk()

    def read(self) -> dict[str, int]:
        """Return what was used: times in microseconds, memory and transfers in bytes."""
        found = _PEAK.search(_read("/proc/self/status"))
        read, written = _disk()
        return {
            "cpu_us": _cpu_us() - self._cpu_us,
            "peak_nbytes": int(found[1]) << 10 if found else 0,
            "is_peak_own": int(self.is_peak_own),
            "read_nbytes": read - self._disk[0],
            "written_nbytes": written - self._disk[1],
        }
