"""A small line without an axis, beside a number. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ...protocol.markup import Markup, element

#: The size of its drawing, which the style stretches.
_WIDTH, _HEIGHT = 100, 24


def sparkline(
    values: Sequence[float], n: int, kind: str, label: str, most: float = 0.0
) -> Markup | None:
    """Return a line of the latest values; None = there are too few.

    Args:
        values: oldest first; the last one is at the right edge.
        n: of values from edge to edge; where there are less, the left is empty.
        kind: the colour: "done", "run", "full" or "soft".
        label: what it shows, for those who do not see it.
        most: the value at the upper edge, if no other is larger.
    """
    if len(values) < 2:
        return None
    top = max(*values, most) or 1.0
    step = _WIDTH / (max(n, len(values)) - 1)
    left = _WIDTH - step * (len(values) - 1)
    points = [
        f"{left + i * step:.1f} {_HEIGHT - 1 - value / top * (_HEIGHT - 2):.1f}"
        for i, value in enumerate(values)
    ]
    line = "M" + "L".join(points)
    return element(
        "svg",
        element("path", d=f"{line}L{_WIDTH} {_HEIGHT}L{left:.1f} {_HEIGHT}Z", class_="below"),
        element("path", d=line, class_="line"),
        class_=f"spark of-{kind}",
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
    )
