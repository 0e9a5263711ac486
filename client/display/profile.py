"""A profile: which calls took the time of tasks, as text, flame graph and file."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any, Final

from ...protocol import flame_graph
from ...protocol.markup import element, join
from ...protocol.stack_tree import FrameTotals, StackTree
from ...protocol.wording import grouped, lasting
from .page import in_cell, standing_alone

#: Functions in the text, and characters of one.
_N_TOP: Final = 15
_MAX_CHARS: Final = 70


class Profile:
    """Which calls took the time of the tasks that ran: printed, shown in a notebook, or saved.

    Attributes:
        tree: the samples, as a tree of calls.
        seconds: in which they were made.
        interval_s: between two samples of a thread, on average.
        notes: what is missing, a sentence each.
    """

    def __init__(
        self,
        tree: StackTree,
        *,
        seconds: float,
        interval_s: float,
        of: Sequence[str] = (),
        notes: Sequence[str] = (),
    ) -> None:
        self.tree = tree
        self.seconds = seconds
        self.interval_s = interval_s
        self.notes = list(notes)
        self._of = list(of)
        if tree.n_cut:
            self.notes.append(f"{grouped(tree.n_cut)} samples were too deep, or of too many kinds")

    @property
    def n_samples(self) -> int:
        """How many stacks of running tasks were seen."""
        return self.tree.n_samples

    def top(self, n: int = _N_TOP) -> list[FrameTotals]:
        """Return the functions with most samples of their own: `(frame, n_self, n_total)`."""
        return [row for row in self.tree.totals() if row.frame.file][:n]

    def __repr__(self) -> str:
        return f"<Profile: {self._about()}>"

    def _about(self) -> str:
        of = f" of {', '.join(self._of)}" if self._of else ""
        return f"{grouped(self.n_samples)} samples{of}, in {lasting(self.seconds)}"

    def __str__(self) -> str:
        lines = [self._about()]
        n = self.n_samples
        if not n:
            lines.append("no task was seen to run")
        else:
            lines += ["", "  itself  with calls  function"]
            for frame, n_self, n_total in self.top():
                text = str(frame)
                text = text if len(text) <= _MAX_CHARS else f"…{text[1 - _MAX_CHARS :]}"
                lines.append(f"{n_self / n:7.1%}  {n_total / n:9.1%}   {text}")
            functions = self.tree.functions()
            if len(functions) > 1:
                lines += ["", "          tasks of"]
                for name, count in list(functions.items())[:_N_TOP]:
                    lines.append(f"{count / n:7.1%}   {name}")
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines)

    def page(self) -> str:
        """Return an HTML page with the flame graph, which needs no other file."""
        notes = [element("p", note, class_="soft") for note in self.notes]
        body = join(
            element(
                "header",
                element("h1", "weft profile"),
                element("span", self._about(), class_="soft"),
            ),
            element("main", element("section", flame_graph.flame_graph(self.to_data()), *notes)),
        )
        return standing_alone("weft profile", body, has_flames=True)

    def to_data(self) -> dict[str, Any]:
        """Return what the script of the flame graph draws, as plain data."""
        return flame_graph.as_data(self.tree, self.interval_s, self.seconds, self.notes)

    def save(self, filename: str | os.PathLike[str] = "profile.html") -> None:
        """Write the flame graph as an HTML file; as JSON for speedscope if it ends with `.json`.

        Raises:
            OSError: it cannot be written.
        """
        file = os.fspath(filename)
        text = json.dumps(self.to_speedscope()) if file.endswith(".json") else self.page()
        with open(f"{file}.part", "w", encoding="utf-8") as part:
            part.write(text)
        os.replace(f"{file}.part", file)

    def to_speedscope(self) -> dict[str, Any]:
        """Return what https://www.speedscope.app reads, as plain data."""
        places: dict[Any, int] = {}
        samples: list[list[int]] = []
        weights: list[float] = []
        for stack, n in self.tree.stacks():
            samples.append([places.setdefault(frame, len(places)) for frame in stack])
            weights.append(n * self.interval_s)
        frames = [
            {"name": frame.name, **({"file": frame.file, "line": frame.line} if frame.file else {})}
            for frame in places
        ]
        profile = {
            "type": "sampled",
            "name": self._about(),
            "unit": "seconds",
            "startValue": 0,
            "endValue": sum(weights),
            "samples": samples,
            "weights": weights,
        }
        return {
            "$schema": "https://www.speedscope.app/file-format-schema.json",
            "exporter": "weft",
            "shared": {"frames": frames},
            "profiles": [profile],
        }

    def _repr_html_(self) -> str:
        return in_cell(self.page(), 640)
