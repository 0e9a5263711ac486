"""`Category`: tasks of one kind, which get as much memory and as many cores as others have used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...protocol.amounts import MEMORY, is_amount
from ...protocol.durations import Duration, seconds_or_none
from ...protocol.errors import ConfigError, InvalidAmount, InvalidDuration
from ...protocol.settings.kinds import parse_bytes
from ...protocol.wire.columns import MAX_SIZE, MAX_TAG_CHARS
from ...protocol.wire.options import MAX_MULTIPLE, MAX_THROUGHPUT, MODES
from ...protocol.wording import nearest


@dataclass(frozen=True)
class Category:
    """Tasks that use about as much as each other: `submit(f, x, category=Category("fits"))`.

    The scheduler measures what tasks of the category use. The first ones get the largest allocation
    of memory, so each is alone on its worker as far as others name memory. Later ones get as much
    as the mode says. A task that uses more is ended and run again with the largest allocation,
    which counts neither as a failure nor as a retry. If that does not suffice, it fails with
    `AllotmentExceeded`.

    Tasks with processes of their own, as `weft.Command` and calls of `weft worker --isolate`, get
    cores as well: one at first, and later as many as others have kept busy. A task that uses more
    goes on. A call that gives `cores=` has these.

    Categories of one name are one, for all clients; the mode and maximum of the latest call count.

    Args:
        name: of the category.
        mode: how the first allocation of a task is chosen. "max throughput" lets most tasks end in
            a given time and memory; "min waste" leaves least memory unused; "max" is the most that
            was seen; "fixed" is the largest allocation, and nothing is learned. Of cores "max
            throughput" and "min waste" leave least unused.
        max_memory: the largest allocation, bytes or "4GB"; None = all memory of a worker.
        max_wall_time: how long an attempt may run that has no `timeout=` of its own, in seconds or
            as "5 min"; None = for ever.
        idempotent: calls may be run again at any time, also while the first run goes on.
        abort_stragglers: a call that takes longer than so many times the mean of at least 10 that
            have ended is interrupted, and begun on another worker with a free thread; it takes no
            retry. The next time its limit is doubled. None = never; else `idempotent` is needed.
            It counts for the calls that are submitted with it, and not while their queue is paused.
        copy_stragglers: as `abort_stragglers`, which cannot be given as well, but such a call goes
            on beside the one that is begun elsewhere. The first result counts; the other attempt is
            interrupted then.

    Raises:
        InvalidAmount: the maximum is no size.
        InvalidDuration: the maximum is no time.
        ValueError: the name, the mode or the multiple is wrong.
    """

    name: str
    mode: str = MAX_THROUGHPUT
    max_memory: int | float | str | None = None
    max_wall_time: Duration | None = None
    idempotent: bool = False
    abort_stragglers: float | None = None
    copy_stragglers: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not 0 < len(self.name) <= MAX_TAG_CHARS:
            text = (
                f"a category has a name of 1 to {MAX_TAG_CHARS} characters, not {self.name!r:.80}"
            )
            raise ValueError(text)
        if self.mode not in MODES:
            close = nearest(str(self.mode), MODES, 0.5)
            hint = f"; did you mean {close!r}?" if close else ""
            raise ValueError(f"mode= is one of {', '.join(MODES)}, not {self.mode!r:.80}{hint}")
        self._check_stragglers()
        self.max_nbytes  # noqa: B018 - a wrong size is refused here
        read_time_limit(self.max_wall_time, "max_wall_time")

    def _check_stragglers(self) -> None:
        name, multiple = self.straggler_limit
        if multiple is None:
            return
        if name == "abort_stragglers" and self.copy_stragglers is not None:
            raise ValueError("give abort_stragglers= or copy_stragglers=, not both")
        if not is_amount(multiple) or not 1 <= multiple <= MAX_MULTIPLE:
            text = f"{name}= is a number of 1 to {MAX_MULTIPLE:g}, not {multiple!r:.80}"
            raise ValueError(text)
        if self.idempotent is not True:
            raise ValueError(
                f"{name}= runs calls a second time: say by idempotent=True that they may"
            )

    @property
    def straggler_limit(self) -> tuple[str, Any]:
        """The keyword by which stragglers are looked for, and its multiple; None = they are not."""
        if self.abort_stragglers is not None:
            return "abort_stragglers", self.abort_stragglers
        return "copy_stragglers", self.copy_stragglers

    @property
    def max_nbytes(self) -> int:
        """The largest allocation, bytes; 0 = all memory of a worker."""
        size: Any = self.max_memory
        if size is None:
            return 0
        if isinstance(size, str):
            try:
                size = parse_bytes(size)
            except ConfigError as error:
                raise InvalidAmount(error.text, "max_memory") from None
        if not is_amount(size) or not 1 <= size <= MAX_SIZE:
            text = f"{size!r:.80} is not a size; write for example 4GB, 512MiB or 2000000000"
            raise InvalidAmount(text, "max_memory")
        return int(size)


def read_time_limit(limit: Any, name: str) -> dict[str, Any]:
    """Return what is sent of the time that an attempt may take, given by this keyword."""
    limit_s = seconds_or_none(limit, name)
    if limit_s is None:
        return {}
    if not limit_s:
        raise InvalidDuration(
            "0 leaves no time to run; leave it out, or give None, if there is to be no limit", name
        )
    return {"timeout_us": min(max(round(limit_s * 1e6), 1), MAX_SIZE)}


def read_category(value: Any) -> dict[str, Any]:
    """Return what is sent of a category."""
    if not isinstance(value, Category):
        raise TypeError(
            f'category= is a weft.Category, as category=weft.Category("fits"), not {value!r:.80}'
        )
    facts: dict[str, Any] = {
        "name": value.name,
        "mode": value.mode,
        "max_nbytes": value.max_nbytes,
    }
    name, multiple = value.straggler_limit
    if multiple is not None:
        facts["straggler_multiple"] = float(multiple)
        facts["copies_stragglers"] = name == "copy_stragglers"
    return {"category": facts}


def check_alone(made: dict[str, Any]) -> None:
    """Refuse a category where the memory of a task is given, too.

    Raises:
        ValueError: both are given.
    """
    if "category" in made and MEMORY in made.get("resources", {}):
        raise ValueError("category= and memory= say the same thing: give one of them")
