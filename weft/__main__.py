"""``python -m weft`` is the ``weft`` command."""

from __future__ import annotations

from .deploy.cli.command import main

if __name__ == "__main__":
    main()
