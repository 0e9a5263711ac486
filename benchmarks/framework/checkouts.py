"""Another checkout of weft, with its own environment, that a benchmark compares with this one."""

from __future__ import annotations

import argparse
from pathlib import Path


def interpreter(checkout: Path) -> Path:
    """Return the Python of a checkout's environment."""
    return checkout / ".venv" / "bin" / "python"


def add_other(parser: argparse.ArgumentParser) -> None:
    """Add the argument `other`: an absolute path of a checkout that can run."""
    parser.add_argument("other", type=_ready, help="a checkout with an environment in .venv")


def _ready(path: str) -> Path:
    checkout = Path(path).resolve()
    if not interpreter(checkout).exists():
        raise argparse.ArgumentTypeError(
            f"{checkout} has no .venv; run: make -C {path} .venv/.ready"
        )
    return checkout
