"""Check an installed weft, far from the checkout: every module imports, and a cluster maps.

Run by `make wheel` with the interpreter of a fresh environment that holds only the wheel, from an
empty folder. The argument is the checkout, which nothing may be imported from.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from pathlib import Path

import weft
from weft.protocol import coders_file
from weft.protocol.host.checkout import commit_of

#: Packages that only an extra installs, and the modules that may need them.
EXTRAS = {
    "airflow": "weft.compat.airflow",
    "joblib": "weft.joblib",
    "papermill": "weft.compat.papermill",
    "parsl": "weft.compat.parsl",
    "prefect": "weft.compat.prefect",
    "psycopg": "weft.scheduler.journal.postgresql",
    "rich": "weft.deploy.top.",
    "snakemake_interface_executor_plugins": "weft.compat.snakemake",
}


def square(x: int) -> int:
    """Return the square of `x`."""
    return x * x


def main() -> None:
    """Raise where the installed package is not whole."""
    checkout = Path(sys.argv[1]).resolve()
    assert not Path(weft.__file__).resolve().is_relative_to(checkout), weft.__file__
    assert Path(weft.__file__).with_name("py.typed").is_file()

    # Before a message is sent, which would write a file that the build has left out.
    assert coders_file.FILE.read_text(encoding="utf-8") == coders_file.text_of_file()

    # Through the source archive, which has no git. Only a release has no commit.
    commit = commit_of(checkout)
    assert f"+g{commit}" in weft.__version__ or not commit or ".dev" not in weft.__version__

    chart = Path(str(importlib.import_module("weft.deploy.helm.__main__").CHART))
    files = {path.relative_to(chart) for path in chart.rglob("*") if path.is_file()}
    source = checkout / "deploy" / "helm" / "weft"
    assert files == {path.relative_to(source) for path in source.rglob("*") if path.is_file()}

    n_modules = 0
    for module in pkgutil.walk_packages(weft.__path__, "weft."):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            if error.name not in EXTRAS or not module.name.startswith(EXTRAS[error.name]):
                raise
        n_modules += 1

    with weft.Client(n_workers=1) as client:
        results = client.gather(client.map(square, range(10)))
    assert results == [x * x for x in range(10)], results
    print(f"weft {weft.__version__}: {n_modules} modules import, a local cluster maps")


if __name__ == "__main__":
    main()
