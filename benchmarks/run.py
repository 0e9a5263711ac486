"""Run weft and its peers through the same work on this machine, and print the tables:
`python -m benchmarks.run`; `--help` lists what can be chosen.
"""

from __future__ import annotations

import sys

from .framework.command import main

if __name__ == "__main__":
    sys.exit(main())
