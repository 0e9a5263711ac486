"""The look of all plots, and how they are written.

They have no background, and use tones that are readable on white and on dark pages. The same cells
give the same bytes: there is no date and no random id in them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from .results import grouped

#: Contrast above 4 with white and with nearly black alike.
INK = "#7a7a7a"

#: Matplotlib's type for this is a list of all its settings.
_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "weft",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlesize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": INK,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "path.simplify": True,
}


def write(draw: Callable[[], Any], path: Path) -> Path:
    """Write what `draw` returns, a figure of matplotlib, as SVG; return the path.

    Raises:
        ImportError: matplotlib is not installed.
    """
    import matplotlib as mpl

    path.parent.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(_STYLE):
        draw().savefig(path, format="svg", transparent=True, metadata={"Date": None})
    return path


def plain(value: float, position: float | None) -> str:
    """Return the text of a tick: 1 000 and 0.001 rather than powers of ten."""
    return grouped(value) if value >= 1 else f"{value:.10f}".rstrip("0")
