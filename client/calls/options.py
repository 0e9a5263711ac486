"""The options of calls: what users give by keywords becomes what is sent (`protocol.wire.options`).

A keyword without a reader of its own is that of an option of the same name, which is sent as it is
given once its check has passed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ...protocol.amounts import CORES, MEMORY, asked_by_cores, is_amount
from ...protocol.errors import ConfigError, InvalidAmount
from ...protocol.settings.kinds import parse_bytes
from ...protocol.wire.options import KEYWORDS, NO_OPTIONS, OPTIONS, TaskOptions
from .categories import check_alone, read_category, read_time_limit
from .conditions import READERS as CONDITIONS
from .retries import Retries

#: {keyword: the value that means that it was not given}
DEFAULTS: Final[dict[str, Any]] = {
    **dict.fromkeys(KEYWORDS),
    "allow_other_workers": False,
    "priority": 0,
}


def make_options(given: Mapping[str, Any]) -> TaskOptions:
    """Check options, by keyword, and combine them.

    Raises:
        TypeError, ValueError: an option has the wrong type or is out of range.
        InvalidAmount: an amount is one of these ValueErrors.
    """
    if given == DEFAULTS:
        return NO_OPTIONS
    made: dict[str, Any] = {}
    for keyword, value in given.items():
        if value is not None:
            read = _READERS.get(keyword)
            read_value = _read_plain(keyword, value) if read is None else read(value)
            if keyword in _AMOUNTS:
                read_value = {"resources": _added(made.get("resources", {}), read_value)}
            elif twice := made.keys() & read_value:
                names = " and ".join(f"{name}=" for one in twice for name in OPTIONS[one].keywords)
                raise ValueError(f"{names} say the same thing: give one of them")
            made |= read_value
    check_alone(made)
    if "category" in made and CORES not in made.get("resources", {}) and _names_one_core(given):
        made["resources"] = {**made.get("resources", {}), CORES: 1}  # else the category chooses
    if "category" in made and given.get("timeout") is None:
        limit = read_time_limit(given["category"].max_wall_time, "max_wall_time")
        made |= limit
        if limit:  # by which the error of a call that takes longer names the category
            made["category"] |= {"max_wall_us": limit["timeout_us"]}
    options = TaskOptions(**made)
    if options.allow_other_workers and not options.workers:
        raise ValueError("allow_other_workers= has no effect without workers=")
    return options if vars(options) else NO_OPTIONS


def _names_one_core(given: Mapping[str, Any]) -> bool:
    return given.get(CORES) == 1 or (given.get("resources") or {}).get(CORES) == 1


def _read_plain(keyword: str, value: Any) -> dict[str, Any]:
    try:
        return {keyword: OPTIONS[keyword].check(value, [])}
    except (TypeError, ValueError) as error:
        raise ValueError(f"{keyword}={value!r:.80}: {error}") from None


def _read_retries(retries: Any) -> dict[str, Any]:
    if isinstance(retries, Retries):
        return {"retries": retries.n, "pauses": retries.as_pauses()}
    if type(retries) is not int or not 0 <= retries < 1 << 31:
        raise ValueError(f"retries= is a whole number >= 0, or weft.Retries, not {retries!r}")
    return {"retries": retries}


def _read_workers(workers: Any) -> dict[str, Any]:
    names: list[Any]
    try:
        names = [workers] if isinstance(workers, str) else [*workers]
    except TypeError:
        names = [workers]
    if not all(isinstance(name, str) and name for name in names):
        advice = for_the_function("workers")
        if int in map(type, names):
            advice = "workers have no numbers, and [*client.nthreads()] are their addresses"
        raise TypeError(f"workers= are names, hosts or addresses, not {workers!r}; {advice}")
    if not names:
        raise ValueError("workers= is empty: no worker could run this")
    return {"workers": names}


def _read_resources(resources: Any) -> dict[str, Any]:
    if not isinstance(resources, Mapping):
        raise TypeError(
            f'resources= maps names to amounts, as {{"GPU": 1}} does; this is {resources!r}; '
            + for_the_function("resources")
        )
    for name, amount in resources.items():
        if not isinstance(name, str) or not is_amount(amount):
            text = f"resources= maps names to amounts >= 0, not {name!r} to {amount!r:.80}"
            raise InvalidAmount(text)
    cores = resources.get(CORES)
    if cores is None:
        return {**resources}
    return {**{n: a for n, a in resources.items() if n != CORES}, **asked_by_cores(cores)}


def _read_memory(memory: Any) -> dict[str, Any]:
    if isinstance(memory, str):
        try:
            memory = parse_bytes(memory)
        except ConfigError as error:
            raise InvalidAmount(error.text, MEMORY) from None
    if not is_amount(memory):
        text = f"{memory!r:.80} is not a size; write for example 4GB, 512MiB or 2000000000"
        raise InvalidAmount(text, MEMORY)
    return {MEMORY: memory} if memory else {}


def _added(amounts: dict[str, float], others: dict[str, float]) -> dict[str, float]:
    """Combine the amounts of several keywords."""
    if twice := amounts.keys() & others:
        text = f"{min(twice)} is given twice: by its own keyword, and among resources="
        raise InvalidAmount(text)
    return {**amounts, **others}


#: {keyword: what reads its value}, of those that make up what a task asks for
_AMOUNTS: Final[dict[str, Callable[[Any], dict[str, Any]]]] = {
    "resources": _read_resources,
    CORES: asked_by_cores,
    MEMORY: _read_memory,
}
_READERS: Final[dict[str, Callable[[Any], dict[str, Any]]]] = {
    "retries": _read_retries,
    "workers": _read_workers,
    **_AMOUNTS,
    "category": read_category,
    "timeout": lambda value: read_time_limit(value, "timeout"),
    "allow_other_workers": lambda value: {"allow_other_workers": bool(value)},
    **CONDITIONS,
}


def for_the_function(option: str) -> str:
    """Return the advice for a keyword that may be meant for the function of a call."""
    return (
        f"{option}= is an option of submit and map: to pass it to the function, use "
        "functools.partial"
    )
