"""Print the folder of weft's Helm chart: `helm install sim "$(python -m weft.deploy.helm)"`."""

from __future__ import annotations

import argparse
from pathlib import Path

#: The folder of the chart, which helm takes as it is.
CHART = Path(__file__).resolve().parent / "weft"


def main() -> None:
    """Print it."""
    argparse.ArgumentParser(
        prog="python -m weft.deploy.helm",
        description="Print the folder of the Helm chart that belongs to this weft.",
        epilog="example: helm install sim $(python -m weft.deploy.helm) --namespace lab",
    ).parse_args()
    print(CHART)


if __name__ == "__main__":
    main()
