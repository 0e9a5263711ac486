"""Write the files of the chart that are made from others: `make chart`.

README.md comes from README.md.gotmpl and the comments of values.yaml, by helm-docs; `files/` are
copies of what `deploy/monitoring/` has, because a chart is packaged without the folders around it.
`--check` writes nothing, and fails if a file is not up to date.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CHART = Path(__file__).resolve().parents[2] / "deploy" / "helm" / "weft"
MONITORING = CHART.parents[1] / "monitoring"


def readme(helm_docs: Path) -> str:
    """Return what the chart's README should be."""
    command = [helm_docs, f"--chart-search-root={CHART}", "--dry-run", "--sort-values-order=file"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    lines = [line.rstrip() for line in done.stdout.strip().splitlines()]
    return "\n".join(lines) + "\n"


def copies() -> dict[Path, str]:
    """Return {file of the chart: its content} of the copies."""
    names = {"rules.yaml": "rules.yaml", "weft.json": "weft.json"}
    found = {}
    for name, source in names.items():
        for path in sorted(MONITORING.rglob(source)):
            found[CHART / "files" / name] = path.read_text()
    return found


def main() -> int:
    """Write the files; return the exit code."""
    from tests.tools.find import find

    helm_docs = find("helm-docs")
    if helm_docs is None:
        print("helm-docs is missing: make tools ARGS=helm-docs", file=sys.stderr)
        return 2
    stale = 0
    for path, text in {CHART / "README.md": readme(helm_docs), **copies()}.items():
        if not path.exists() or path.read_text() != text:
            stale = 1
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            print(f"wrote {path.relative_to(CHART)}")
    if not stale:
        print("the chart's files are up to date")
    return 0


if __name__ == "__main__":
    sys.exit(main())
