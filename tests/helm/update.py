"""Write the chart's README.md, from README.md.gotmpl and the comments of values.yaml: `make chart`.

helm-docs makes it. What is in `files/` is also that of `deploy/monitoring/`, which has links to it:
a chart is packaged without the folders around it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CHART = Path(__file__).resolve().parents[2] / "deploy" / "helm" / "weft"


def readme(helm_docs: Path) -> str:
    """Return what the chart's README should be."""
    command = [helm_docs, f"--chart-search-root={CHART}", "--dry-run", "--sort-values-order=file"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    lines = [line.rstrip() for line in done.stdout.strip().splitlines()]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write the file; return the exit code."""
    from tests.tools.find import find

    helm_docs = find("helm-docs")
    if helm_docs is None:
        print("helm-docs is missing: make tools ARGS=helm-docs", file=sys.stderr)
        return 2
    path, text = CHART / "README.md", readme(helm_docs)
    if path.read_text() == text:
        print("the chart's README.md is up to date")
    else:
        path.write_text(text)
        print("wrote the chart's README.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
