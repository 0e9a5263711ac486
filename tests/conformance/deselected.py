"""The tests of dask that weft's engines are not expected to pass, each with its reason.

They are run all the same, unless the entry says `run=False`, and one that passes is reported: then
its entry has to go. Made for the version of dask that `suites.DASK_VERSION` names.
"""

from __future__ import annotations

from dataclasses import dataclass

from .engines import ENGINES

#: Those that run a graph in the process that has it, or in processes which that one has started.
WEFT = tuple(
    name for name, engine in ENGINES.items() if engine.provider == "weft" and name != "cluster"
)
UNORDERED = tuple(name for name in WEFT if not ENGINES[name].is_ordered)
CLUSTER = ("cluster",)
ELSEWHERE = tuple(
    name for name, engine in ENGINES.items() if engine.default in {"processes", "cluster"}
)
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
        (*UNORDERED, "cluster"),
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
        (*WEFT, "cluster"),
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
        tuple(name for name in EVERYWHERE if name not in {"dask-processes", "processes"}),
    ),
    Deselected(
        "the same; a kept cluster hears with its next graph, or a moment later, that the store is "
        "not used any more, so that the test depends on the clock",
        ("bag/tests/test_bag.py::test_temporary_directory",),
        ("processes",),
        run=False,
    ),
    Deselected(
        "a run gives Delayed the default scheduler that is tested, and the test a class of its own "
        "the threaded one; dask refuses to compute both together",
        ("tests/test_delayed.py::test_custom_delayed",),
        tuple(name for name, engine in ENGINES.items() if engine.default in {"sync", "processes"}),
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
        ELSEWHERE,
    ),
    Deselected(
        "the tasks hold what cannot be pickled: thread locks, HDF5 files",
        (
            "array/tests/test_array_core.py::test_store_locks_count_calls",
            "array/tests/test_array_core.py::test_store_locks_dont_assume_threadsafe",
            "array/tests/test_array_core.py::test_to_hdf5",
            "array/tests/test_xarray.py::test_shared_tasks",
        ),
        ELSEWHERE,
    ),
    Deselected(
        "compares with nan by identity, and what was pickled is another nan",
        ("dataframe/io/tests/test_parquet.py::test_filter_isna",),
        ELSEWHERE,
    ),
    Deselected(
        "sets dask's configuration, which does not come along to worker processes",
        ("dataframe/tests/test_shuffle.py::test_disk_shuffle_with_unknown_compression",),
        ELSEWHERE,
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
        ELSEWHERE,
    ),
    # --- On a cluster: what the client returns, and what it leaves to dask -----------------------
    Deselected(
        "expects values in the graph of a persisted collection; a client persists without waiting, "
        "so there are futures",
        (
            "tests/test_base.py::test_custom_collection",
            "tests/test_base.py::test_persist_delayed_custom_key",
            "tests/test_composite_expr.py::test_composite_expr_persist_rebuilds_collection",
        ),
        CLUSTER,
    ),
    Deselected(
        "counts by a callback of dask, or by a pool of the caller; tasks of a client end on the "
        "cluster, and have no part in either",
        (
            "tests/test_base.py::test_compute_no_opt",
            "tests/test_base.py::test_num_workers_config",
        ),
        CLUSTER,
    ),
    Deselected(
        "expects that no scheduler is configured; the open client is",
        ("tests/test_base.py::test_get_scheduler",),
        CLUSTER,
    ),
    Deselected(
        "the tasks count in an object of the caller",
        (
            "dataframe/io/tests/test_io.py::test_from_map_column_projection",
            "tests/test_graph_manipulation.py::test_bind",
            "tests/test_graph_manipulation.py::test_checkpoint",
            "tests/test_graph_manipulation.py::test_checkpoint_collections",
            "tests/test_graph_manipulation.py::test_wait_on_many",
            "tests/test_graph_manipulation.py::test_wait_on_one",
        ),
        CLUSTER,
    ),
    Deselected(
        "waits for a warning, which the worker has",
        (
            "array/tests/test_wrap.py::test_full_detects_da_dtype",
            "bag/tests/test_bag.py::test_take_npartitions_warn",
            "bag/tests/test_text.py::test_files_per_partition",
        ),
        CLUSTER,
    ),
    Deselected(
        "the tasks hold what cannot be pickled for another process that is no child of this one: "
        "thread locks, proxies of multiprocessing's managers, HDF5 files open for writing",
        (
            "array/tests/test_array_core.py::test_h5py_newaxis",
            "array/tests/test_array_core.py::test_store_locks_failure_lock_released",
            "array/tests/test_array_core.py::test_store_locks_no_lock",
            "array/tests/test_array_core.py::test_store_locks_one_lock_two_stores",
            "array/tests/test_array_core.py::test_store_method_return[False-True]",
            "array/tests/test_array_core.py::test_store_multiprocessing_lock",
            "array/tests/test_array_core.py::test_store_sources_unoptimized_nocompute",
        ),
        CLUSTER,
    ),
    Deselected(
        "the tasks hold a function of numpy.frompyfunc, which cannot be pickled; it fails with "
        "dask's own processes as well, where the test does not ask for `sync`",
        ("array/tests/test_ufunc.py::test_frompyfunc",),
        CLUSTER,
    ),
    Deselected(
        "tells chunks of one axis from those of several by tuples in what `get` returns; that of a "
        "client returns lists, as dask.distributed's does",
        ("array/tests/test_array_core.py::test_from_array_no_asarray",),
        CLUSTER,
    ),
    Deselected(
        "its getter sets a variable of the test",
        (
            "array/tests/test_array_core.py::test_from_array_getitem[False-True]",
            "array/tests/test_array_core.py::test_from_array_getitem[True-True]",
        ),
        CLUSTER,
    ),
    Deselected(
        "compares by identity: a function, an array in a list, or the decimal context in a data "
        "type of pandas comes back as another object",
        (
            "bag/tests/test_bag.py::test_bag_with_single_callable",
            "bag/tests/test_bag.py::test_repartition_partition_size_complex_dtypes",
            "dataframe/tests/test_extensions.py::test_register_extension_type",
        ),
        CLUSTER,
    ),
    Deselected(
        "groups a bag by an index or a name, or into a number of parts, as only dask's shuffle on "
        "a disk does. With a client it shuffles by tasks, where `groupby` takes only functions and "
        "ignores `npartitions`, also with dask's own schedulers and `shuffle='tasks'`",
        (
            "bag/tests/test_bag.py::test_groupby_with_indexer",
            "bag/tests/test_bag.py::test_groupby_with_npartitions_changed",
            "bag/tests/test_bag.py::test_msgpack_unicode",
        ),
        CLUSTER,
    ),
    Deselected(
        "a task returns a weak reference to what only a list of the caller keeps alive; here that "
        "is a copy of the list, which ends with the task",
        ("dataframe/tests/test_dataframe.py::test_use_of_weakref_proxy",),
        CLUSTER,
    ),
    Deselected(
        "looks for the shuffle on a disk among the expressions, or counts its tasks. With a client "
        "frames are shuffled by tasks, and then it fails with dask's own schedulers as well",
        (
            "dataframe/dask_expr/tests/test_merge.py::test_merge_combine_similar[2-3]",
            *(
                f"dataframe/dask_expr/tests/test_partitioning_knowledge.py::{test}"
                for test in (
                    "test_avoid_shuffle_on_top_of_lowered_shuffle",
                    "test_groupby_avoid_shuffle",
                    "test_merge_avoid_shuffle",
                    "test_merge_shuffle_if_different_order",
                    "test_shuffle_after_only_blockwise_merge",
                )
            ),
        ),
        CLUSTER,
    ),
    Deselected(
        "tasks write chunks of one shard of a zarr array at the same time: each process reads the "
        "shard, changes it and writes it, and changes of others are lost. dask writes whole shards "
        "if the array has them as its chunks",
        (
            "array/tests/test_array_core.py::test_zarr_sharding_roundtrip[chunks0-shards0]",
            "array/tests/test_array_core.py::test_zarr_sharding_roundtrip[chunks1-shards1]",
        ),
        CLUSTER,
        run=False,
    ),
    Deselected(
        "a generator is an argument of a task, and cannot be pickled",
        ("bag/tests/test_bag.py::test_reductions_are_lazy",),
        CLUSTER,
    ),
    Deselected(
        "a generator is the result of a task. It cannot be pickled (UnpicklableResult), so they "
        "pass only if the task that reads it happens to run in the same process",
        (
            "bag/tests/test_bag.py::test_from_delayed_iterator",
            *(
                f"bag/tests/test_text.py::test_read_text[{compression}-None-{encoding}-{paths}]"
                for compression in (None, "bz2", "gzip", "xz", "zip")
                for encoding in ("ascii", "utf-8")
                for paths in (False, True)
            ),
        ),
        CLUSTER,
        run=False,
    ),
]


def find(test: str, engine: str) -> Deselected | None:
    """Return the entry for a node id on an engine, or None."""
    bare = test.partition("[")[0]
    for entry in DESELECTED:
        if engine in entry.engines and not {test, bare}.isdisjoint(entry.tests):
            return entry
    return None
