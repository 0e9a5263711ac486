"""The tests of dask that weft's engines are not expected to pass, each with its reason.

They are run all the same, unless the entry says `run=False`, and one that passes is reported: then
its entry has to go. Made for the version of dask that `suites.DASK_VERSION` names.
"""

from __future__ import annotations

from dataclasses import dataclass

from .engines import ENGINES

WEFT = tuple(name for name, engine in ENGINES.items() if engine.provider == "weft")
UNORDERED = tuple(name for name in WEFT if not ENGINES[name].is_ordered)
PROCESSES = tuple(name for name, engine in ENGINES.items() if engine.default == "processes")
EVERYWHERE = tuple(ENGINES)


@dataclass(frozen=True)
class Deselected:
    """Tests that fail for one reason."""

    #: The reason, in a sentence: the behaviour of dask, and that of weft.
    reason: str
    #: Node ids below the folder of dask: "tests/test_local.py::test_callback". Without parameters
    #: they stand for all of them.
    tests: tuple[str, ...]
    #: The engines they fail on.
    engines: tuple[str, ...] = WEFT
    #: False: not even tried, because the test hangs or depends on the clock.
    run: bool = True


DESELECTED: list[Deselected] = [
    # --- Weft does something else, on purpose ---------------------------------------------------
    Deselected(
        "dask's engines ignore keywords that they do not know, like `bogus_keyword=10`; weft "
        "refuses them (UnknownOption), since a misspelt option should not go unnoticed",
        (
            "array/tests/test_array_core.py::test_array_compute_forward_kwargs",
            "bag/tests/test_bag.py::test_bag_compute_forward_kwargs",
            "dataframe/dask_expr/tests/test_categorical.py::test_categorical_set_index",
            "dataframe/io/tests/test_csv.py::test_to_csv_keeps_all_non_scheduler_compute_kwargs",
            "dataframe/tests/test_dataframe.py::test_dataframe_compute_forward_kwargs",
            "tests/test_delayed.py::test_delayed_compute_forward_kwargs",
            "tests/test_local.py::test_callback",
        ),
    ),
    Deselected(
        "dask's engines always go by dask.order, whose cost grows with the graph; weft goes depth "
        "first, and by dask.order if it is given: see the engine `ordered`",
        (
            "tests/test_local.py::test_ordering",
            "tests/test_order.py::test_local_parents_of_reduction",
        ),
        UNORDERED,
    ),
    Deselected(
        "the test waits for dask's words, 'Missing dependency'; weft raises a ValueError too, "
        "MissingKey, in other words",
        ("tests/test_local.py::test_detect_malformed_graph",),
    ),
    Deselected(
        "dask raises RuntimeError('Cycle detected ...'); weft raises GraphCycle, a ValueError like "
        "its other errors about graphs",
        ("tests/test_order.py::test_order_cycle",),
    ),
    Deselected(
        "dask optimizes the graph once more for its processes, unless told not to by this option; "
        "weft never does, and has no such option",
        ("tests/test_multiprocessing.py::test_optimize_graph_false",),
    ),
    Deselected(
        "dask starts processes as `multiprocessing.context` of its configuration says, here by "
        "fork; weft's workers are never forks of the caller",
        ("tests/test_multiprocessing.py::test_custom_context_used_python3_posix",),
    ),
    # --- Not about engines: these fail with dask's own in the same places -----------------------
    Deselected(
        "a run gives all collections one default scheduler; the test is about arrays and bags "
        "having different ones",
        (
            "tests/test_base.py::test_compute_array_bag",
            "tests/test_base.py::test_persist_array_bag",
        ),
        EVERYWHERE,
    ),
    Deselected(
        "waits for a warning to be raised as an error, which dask's own settings for pytest do",
        (
            "array/tests/test_array_core.py::test_zarr_risky_shards_warns",
            "array/tests/test_reductions.py::test_nanquantile_all_nan",
        ),
        EVERYWHERE,
    ),
    Deselected(
        "looks for files that dask leaves behind: it pickles the shuffle's store away and forgets "
        "the original; weft keeps that as long as it is used, and it cleans up after itself. On "
        "dask's threads the store cannot even be pickled",
        ("bag/tests/test_bag.py::test_temporary_directory",),
        tuple(name for name in EVERYWHERE if name != "dask-processes"),
    ),
    Deselected(
        "a run gives Delayed the default scheduler that is tested, and the test a class of its own "
        "the threaded one; dask refuses to compute both together",
        ("tests/test_delayed.py::test_custom_delayed",),
        tuple(name for name, engine in ENGINES.items() if engine.default != "threads"),
    ),
    Deselected(
        "dask brings each result to the caller, and a generator cannot be pickled; weft keeps it "
        "in the worker that uses it",
        ("bag/tests/test_text.py::test_read_text_unicode_no_collection",),
        ("dask-processes",),
    ),
    # --- Impossible in any worker process, weft's or dask's ------------------------------------
    Deselected(
        "the tasks change objects of the caller: stores into arrays in its memory, its locks and "
        "counters, files in its memory, objects that are to come back as themselves",
        (
            "array/tests/test_array_core.py::test_from_array_with_lock",
            "array/tests/test_array_core.py::test_memmap",
            "array/tests/test_array_core.py::test_store",
            "array/tests/test_array_core.py::test_store_compute_false",
            "array/tests/test_array_core.py::test_store_delayed_target",
            "array/tests/test_array_core.py::test_store_regions",
            "array/tests/test_array_core.py::test_zarr_existing_array",
            "array/tests/test_array_core.py::test_zarr_regions",
            "array/tests/test_array_core.py::test_zarr_to_zarr_shards",
            "bag/tests/test_bag.py::test_to_delayed_optimize_graph",
            "dataframe/dask_expr/tests/test_fusion.py::test_fusion_executes_only_once",
            "dataframe/io/tests/test_parquet.py::test_fsspec_to_parquet_filesystem_option",
            "tests/test_delayed.py::test_traverse_false",
        ),
        PROCESSES,
    ),
    Deselected(
        "the tasks hold what cannot be pickled: thread locks, HDF5 files",
        (
            "array/tests/test_array_core.py::test_store_locks_count_calls",
            "array/tests/test_array_core.py::test_to_hdf5",
            "array/tests/test_xarray.py::test_shared_tasks",
        ),
        PROCESSES,
    ),
    Deselected(
        "compares with nan by identity, and what was pickled is another nan",
        ("dataframe/io/tests/test_parquet.py::test_filter_isna",),
        PROCESSES,
    ),
    Deselected(
        "sets dask's configuration, which does not come along to worker processes",
        ("dataframe/tests/test_shuffle.py::test_disk_shuffle_with_unknown_compression",),
        PROCESSES,
    ),
    Deselected(
        "waits for a warning or reads the log, which the worker process has",
        (
            *(
                f"array/tests/test_reductions.py::test_array_cumreduction_axis[{parameters}]"
                for parameters in (
                    "blelloch-None-False-cumprod",
                    "blelloch-None-False-nancumprod",
                    "blelloch-None-True-cumprod",
                    "blelloch-None-True-nancumprod",
                )
            ),
            "array/tests/test_routines.py::test_average_raises",
            "dataframe/dask_expr/tests/test_collection.py::test_head",
            "dataframe/io/tests/test_sql.py::test_extra_connection_engine_keywords",
            "dataframe/io/tests/test_sql.py::test_to_sql_engine_kwargs",
            "dataframe/tests/test_dataframe.py::test_head_npartitions_warn",
        ),
        PROCESSES,
    ),
]


def find(test: str, engine: str) -> Deselected | None:
    """Return the entry for a node id on an engine, or None."""
    bare = test.partition("[")[0]
    for entry in DESELECTED:
        if engine in entry.engines and not {test, bare}.isdisjoint(entry.tests):
            return entry
    return None
