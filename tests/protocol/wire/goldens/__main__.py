"""`python -m tests.protocol.wire.goldens --record`: see the package."""

from __future__ import annotations

import argparse
import sys

from . import FILE, record


def main() -> None:
    """Record, or say what has changed."""
    parser = argparse.ArgumentParser(prog="python -m tests.protocol.wire.goldens")
    parser.add_argument("--record", action="store_true", required=True)
    parser.add_argument("--force", action="store_true", help="also what other versions would miss")
    changed = record(force=parser.parse_args().force)
    if changed:
        names = "\n  ".join(changed)
        sys.exit(
            "nothing was recorded, because these have changed other than by growing at their end; "
            f"other versions of weft would not understand them (see --force):\n  {names}"
        )
    print(f"recorded in {FILE}")


if __name__ == "__main__":
    main()
