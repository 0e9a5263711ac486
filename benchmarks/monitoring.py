"""Draw the dashboard of a cluster that was busy for a while, for docs/monitoring.md.

    python -m benchmarks.monitoring docs/images/dashboard.png        # two minutes

It starts a scheduler with pages, two workers, Prometheus (which must be in PATH) and a program that
keeps them busy; it ends them all.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.dashboard_picture import Prometheus, draw
from tests.deploy.daemons import address_of, daemon, file_of, scheduler

BUSY = Path(__file__).parents[1] / "tests" / "deploy" / "monitoring" / "busy.py"
SECONDS = 90.0
START = "import sys; from weft.deploy.monitoring.start import main; sys.exit(main(sys.argv[1:]))"


def main(file: str) -> None:
    """Run the cluster and draw."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = {"PATH": os.environ["PATH"]}
        with (
            scheduler("--dashboard-address", "127.0.0.1:0", folder=folder) as started,
            daemon("worker", "--nworkers", "2", "--nthreads", "2", folder=folder),
            daemon(
                *("--connection-file", str(file_of(started))),
                *("--prometheus-port=0", "--interval=2s"),
                folder=folder,
                code=START,
                **path,
            ) as servers,
        ):
            url = servers.wait_for("/targets").split()[1].removesuffix("/targets")
            begun = time.time()
            code = BUSY.read_text()
            with daemon(address_of(started), str(folder / "x"), folder=folder, code=code) as busy:
                busy.wait_for("busy")
                time.sleep(SECONDS)
                draw(Prometheus(url, 2.0), file, begun, time.time())
    print(f"wrote {file}")


if __name__ == "__main__":
    main(sys.argv[1])
