"""`weft compare`: the figures of two performance reports, function by function."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from .group import weft
from .options import FilePath

#: Figures of a function that are seconds.
_SECONDS: Final = ("mean_s", "median_s", "compute_s", "transfer_s")
#: {figure of a function: title}, in the order of the columns.
_TITLES: Final = {
    "n": "tasks",
    "n_failed": "raised",
    "mean_s": "mean",
    "median_s": "median",
    "compute_s": "computed",
    "transfer_s": "inputs fetched",
}


@weft.command(short_help="Compare the figures of two performance reports.")
@click.argument("before", metavar="A", type=FilePath(path_type=Path, dir_okay=False))
@click.argument("after", metavar="B", type=FilePath(path_type=Path, dir_okay=False))
@click.option("--json", "as_json", is_flag=True, help="Print an object, for programs.")
def compare(before: Path, after: Path, as_json: bool) -> None:
    """Compare two files of weft.performance_report, function by function.

    Functions with the largest difference in computed time come first. Each cell has the figures of
    A and B, and B as a multiple of A: x0.5 is half.

    \b
    Examples:
      weft compare before.html after.html
      weft compare before.html after.html --json | jq .functions.train
    """
    import json

    found = [read(before), read(after)]
    functions = compared(*found)
    if as_json:
        heads = [{k: v for k, v in one.items() if k != "functions"} for one in found]
        click.echo(json.dumps({"a": heads[0], "b": heads[1], "functions": functions}, indent=2))
        return
    for line in table(found, functions):
        click.echo(line)


def read(path: Path) -> dict[str, Any]:
    """Return the figures of a report.

    Raises:
        ConfigError: the file is no report.
    """
    from ...client.display.report import figures_in
    from ...protocol.errors import ConfigError

    try:
        figures = figures_in(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, ValueError):
        figures = None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from None
    if not isinstance(figures, dict):
        raise ConfigError(
            f"{path} is no report with figures: weft.performance_report writes one, and those of "
            "earlier versions have none"
        )
    if figures.get("format") != 1:
        raise ConfigError(f"{path} is of a later version of weft: compare it with that one")
    return figures


def compared(before: dict[str, Any], after: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return `{function: {"a": figures, "b": figures, "ratio": {name: b / a}}}`."""
    found = {}
    for name in {**before["functions"], **after["functions"]}:
        one, other = (_figures(report["functions"].get(name)) for report in (before, after))
        ratios = {k: other[k] / one[k] if one[k] else None for k in _TITLES}
        found[name] = {"a": one, "b": other, "ratio": ratios}

    def difference(item: tuple[str, dict[str, Any]]) -> float:
        before_s, after_s = (float(item[1][of]["compute_s"]) for of in "ab")
        return -abs(after_s - before_s)

    return dict(sorted(found.items(), key=difference))


def _figures(sums: dict[str, Any] | None) -> dict[str, Any]:
    if sums is None:
        return dict.fromkeys(_TITLES, 0)
    return {"mean_s": sums["compute_s"] / sums["n"], **{k: sums[k] for k in _TITLES if k in sums}}


def table(reports: list[dict[str, Any]], functions: dict[str, dict[str, Any]]) -> list[str]:
    """Return the comparison for display."""
    from ...protocol.tables import Column, as_lines
    from ...protocol.wording import counted, lasting

    columns = [Column("function", lambda row: row[0])]
    for name, title in _TITLES.items():
        if any(row["a"][name] or row["b"][name] for row in functions.values()):
            columns.append(Column(title, partial(_cell, name)))
    lines = []
    for letter, one in zip("AB", reports, strict=True):
        threads = counted(one["n_threads"], "thread")
        lines.append(f"{letter}  {one['when']}: {lasting(one['seconds'])} on {threads}")
    if not functions:
        return [*lines, "", "no task ended in either"]
    return [*lines, "", *as_lines(columns, functions.items())]


def _cell(name: str, of: tuple[str, dict[str, Any]]) -> str:
    from ...protocol.wording import grouped, lasting

    show = lasting if name in _SECONDS else grouped
    one, other, ratio = (of[1][part][name] for part in ("a", "b", "ratio"))
    if not (one or other):
        return ""
    if one == other:
        return show(one)
    return f"{show(one)} → {show(other)}" + (f"  x{ratio:.3g}" if ratio else "")
