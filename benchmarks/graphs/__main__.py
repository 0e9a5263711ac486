"""`python -m benchmarks.graphs`: the same as `python -m benchmarks.run --table graphs`."""

from __future__ import annotations

import sys

from ..framework.command import main

if __name__ == "__main__":
    sys.exit(main(["--table", "graphs", *sys.argv[1:]]))
