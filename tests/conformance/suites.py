"""The choice of dask's test files that are run, grouped into suites, and for which engines.

Owns the choice and its reasons. A file is in when its tests have graphs computed by dask's own
engines; `graphs` in the report of a run says how many were, file by file, so that the choice can
be checked. Must never import dask: the runner reads this without it.
"""

from __future__ import annotations

from pathlib import PurePosixPath

#: The version of dask that the choice of files and the list of deselected tests were made for.
DASK_VERSION = "2026.8.0"

#: {suite: files and folders below the folder of dask}. A folder stands for all tests below it.
SUITES: dict[str, tuple[str, ...]] = {
    "array": ("array",),
    "dataframe": ("dataframe",),
    "bag": ("bag",),
    "delayed": ("tests/test_delayed.py",),
    # The contract of engines: results, order, errors, callbacks, caches, pools, worker processes.
    "engines": (
        "tests/test_local.py",
        "tests/test_threaded.py",
        "tests/test_multiprocessing.py",
        "tests/test_callbacks.py",
        "tests/test_cache.py",
        "tests/test_traceback.py",
        "diagnostics",
    ),
    # Everything else that computes.
    "base": (
        "tests/test_base.py",
        "tests/test_composite_expr.py",
        "tests/test_context.py",
        "tests/test_graph_manipulation.py",
        "tests/test_order.py",
        "tests/test_typing.py",
        "tests/test_utils.py",
        "bytes/tests/test_local.py",
    ),
}

#: {engine: {suite: why it is not run on it}}.
NOT_ON = {
    "cluster": {
        "engines": "the contract of what runs in the caller's process: callbacks, caches, pools",
    },
}

#: {file or folder: why it is not run}. Each test file of dask is above or here; what is here and
#: in a folder above is not run.
LEFT_OUT = {
    "dataframe/dask_expr/io/tests/test_distributed.py": "tests distributed.Client",
    "dataframe/dask_expr/tests/test_distributed.py": "tests distributed.Client",
    "tests/test_distributed.py": "tests distributed.Client",
    "bytes": "needs services (S3, HTTP), or runs no graph; but for test_local.py",
    # Tokens, configuration, the command line, graphs as data, sizes (one graph, of one task).
    "tests": "the other files run no graph",
    "widgets": "runs no graph",
}


def suite_of(path: str) -> str | None:
    """Return the suite of a test file, given below the folder of dask ("tests/test_base.py")."""
    above = {path, *map(str, PurePosixPath(path).parents)}
    for suite, places in SUITES.items():
        if not above.isdisjoint(places):
            return suite
    return None
