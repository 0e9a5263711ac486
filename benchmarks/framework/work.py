"""The shapes that all tables share: a system under test, a workload, and the sample of one run."""

from __future__ import annotations

import gc
import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any, ClassVar


class WrongResult(Exception):
    """The system answered, but not with the known value."""


class TooLong(Exception):
    """The workload is left out; the text gives the time that it would have taken."""


@dataclass(slots=True)
class Sample:
    """One run. `value` is in the unit of its workload; `checksum` is the result that was
    verified.
    """

    value: float
    checksum: int
    extra: dict[str, float] = field(default_factory=dict)


def check(found: Any, expected: Any) -> Any:
    """Return what was found.

    Raises:
        WrongResult: it is not what was expected.
    """
    if found != expected:
        raise WrongResult(f"wrong result: {str(found)[:60]} instead of {str(expected)[:60]}")
    return found


class System:
    """A system under test. `open` is called before anything else, `close` at the end."""

    #: Heading of the column.
    title: ClassVar[str]
    #: The module whose absence means "not installed". The distribution whose version is printed has
    #: the same name.
    module: ClassVar[str]

    @classmethod
    def missing(cls) -> str | None:
        """Return why this system cannot be measured here, None if it can."""
        return None if importlib.util.find_spec(cls.module) else f"{cls.module} is not installed"

    @classmethod
    def version(cls) -> dict[str, str]:
        """Return {distribution: version}; {} for the standard library and for what is missing."""
        if cls.module.partition(".")[0] in sys.stdlib_module_names or cls.missing():
            return {}
        try:
            return {cls.module: metadata.version(cls.module)}
        except metadata.PackageNotFoundError:
            return {cls.module: "from the checkout"}

    def open(self) -> None:
        """Import and start what is measured; the warm-up starts what starts at first use."""

    def close(self) -> None:
        """Stop all that `open` started."""

    def settle(self) -> None:
        """Let the system finish what earlier runs left behind; this is not timed."""
        gc.collect()


@dataclass(slots=True, kw_only=True)
class Workload:
    """One entry of a table. `run` takes an open system and a size, times the work alone, and
    compares the result with the known value.
    """

    title: str
    run: Callable[[Any, int], Sample]
    size: int
    #: None: left out with --quick.
    quick_size: int | None
    #: "tasks/s" or "calls/s" (more is better), or a time (less is better).
    unit: str
    #: The systems that can run it; None: all of them.
    systems: tuple[str, ...] | None = None
    #: {system: why it cannot run this, which its cell shows}
    refusals: Mapping[str, str] = field(default_factory=dict)
    #: The systems that run it only if they are named, and the workload whose rate shows how
    #: long they would take.
    too_slow: tuple[str, ...] = ()
    small: str = ""
    #: Modules without which it cannot run.
    needs: tuple[str, ...] = ()
    #: False: the workload starts what it measures itself, beside no idle system.
    needs_open: bool = True
    #: Start the system anew, so that memory of earlier workloads does not hide what this one takes.
    is_fresh: bool = False
    #: Times the usual time limit.
    patience: float = 1.0
    #: The size of the run before the first, which has no figure; 0: there is none.
    warm_up_size: int = 64
    #: The sweep that it is a point of. What `size` counts grows with `point`, and so does the time.
    sweep: str | None = None
    point: int = 0

    @property
    def more_is_better(self) -> bool:
        return self.unit.endswith("/s")

    def size_of(self, *, is_quick: bool) -> int:
        """Return the size in a run of this kind."""
        return (self.quick_size if is_quick else None) or self.size

    def missing(self) -> str | None:
        """Return why it cannot run here, None if it can."""
        absent = [name for name in self.needs if importlib.util.find_spec(name) is None]
        return f"{absent[0]} is not installed" if absent else None
