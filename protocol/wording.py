"""Parts of texts that are the same in all processes. Pure, for the cores as well."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def counted(n: int, noun: str) -> str:
    """Return a number with its noun: `1 thread`, `2 threads`."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def listed(names: Sequence[str], n: int) -> str:
    """Return the first of `n` names, and how many more there are: `a, b and 3 more`."""
    more = f" and {n - len(names)} more" if n > len(names) else ""
    return ", ".join(names) + more


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Return the name of `known` that is most like `name`; "" = none is similar enough."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, list(known), 1, cutoff)), "")


def did_you_mean(name: str, known: Iterable[str], shown: str = "{}", otherwise: str = "") -> str:
    """Return the question for the name of `known` that is most like `name`, or `otherwise`."""
    meant = nearest(name, known)
    return f"did you mean {shown.format(meant)}?" if meant else otherwise


def how_to_install(extra: str) -> str:
    """Return the command that installs what an optional part of weft needs."""
    return f"pip install 'weft[{extra}]', or in a checkout of weft: pip install '.[{extra}]'"


def placed_again(n_tasks: int, n_results: int) -> str:
    """Return what a worker that is gone leaves: `1 task is placed again, 3 results were there`."""
    return (
        f"{counted(n_tasks, 'task')} {'is' if n_tasks == 1 else 'are'} placed again, "
        f"{counted(n_results, 'result')} {'was' if n_results == 1 else 'were'} there"
    )


def lasting(seconds: float) -> str:
    """Return a length of time for display, in one or two units: `20 ms`, `4 min 5 s`, `2 h`."""
    if seconds < 1e-6:
        return "0 s"
    if seconds < 0.9995:
        return f"{seconds * 1e6:.0f} µs" if seconds < 0.9995e-3 else f"{seconds * 1e3:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.2g} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = int(seconds // 60)
    if minutes < 10 and int(seconds % 60):
        return f"{minutes} min {int(seconds % 60)} s"
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def sized(nbytes: float) -> str:
    """Return a number of bytes for display, with three digits: `512 B`, `1.5 KiB`, `25.3 GiB`."""
    unit, *larger = "B", "KiB", "MiB", "GiB", "TiB"
    while nbytes >= 1023.5 and larger:
        nbytes /= 1024
        unit = larger.pop(0)
    return f"{nbytes:.0f} {unit}" if nbytes >= 99.95 else f"{nbytes:.3g} {unit}"


def grouped(n: float, separator: str = " ") -> str:
    """Return a whole number for display, in groups of three digits: `12 345`."""
    return f"{n:,.0f}".replace(",", separator)


def rated(per_second: float) -> str:
    """Return a rate for display: `12 345`, `2.5`, `< 0.01`."""
    if per_second >= 10:
        return grouped(per_second)
    if per_second >= 0.01:
        return f"{per_second:.2g}"
    return "< 0.01" if per_second else "0"


def named_with_user(client: Mapping[str, Any]) -> str:
    """Return the name of a client that the scheduler has described, and whose it is."""
    user = client.get("user", "")  # a scheduler of an earlier version knows no users
    return f"{client['name']} (user {user})" if user else str(client["name"])
