"""What papermill loads by its entry point `weft`, while it is being imported itself.

`weft.compat.papermill` imports papermill. If that module comes first, it is not whole at this
moment, so it is looked up when a notebook is run.
"""

from __future__ import annotations

from typing import Any

from papermill.engines import Engine


class EntryEngine(Engine):  # type: ignore[misc]  # untyped
    """The engine `weft`."""

    @classmethod
    def execute_managed_notebook(cls, *args: Any, **kwargs: Any) -> None:
        """Run the notebook by `WeftEngine`."""
        from .papermill import WeftEngine

        WeftEngine.execute_managed_notebook(*args, **kwargs)
