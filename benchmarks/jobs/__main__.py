"""`python -m benchmarks.jobs`: the same as `python -m benchmarks.run --table jobs`."""

from __future__ import annotations

import sys

from ..framework.command import main

if __name__ == "__main__":
    sys.exit(main(["--table", "jobs", *sys.argv[1:]]))
