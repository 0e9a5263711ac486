"""The command `make conformance` works: a few of dask's tests by way of the same plugin and runner.

Whether weft passes dask's whole suites is for the command itself, which takes many minutes.
"""

from __future__ import annotations

import re

import pytest

from tests.conformance import deselected, executor_deselected, executor_suite, run, suites
from tests.conformance.engines import ENGINES

WHY_NOT = run.why_not()
needs_dask = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)

#: Some of each suite. They are quick, and each has at least one graph run.
SAMPLE = [
    "array/tests/test_array_core.py::test_blocks_indexer",
    "array/tests/test_array_core.py::test_matmul",
    "array/tests/test_linalg.py::test_tsqr_zero_height_chunks",
    "array/tests/test_slicing.py::test_index_with_bool_dask_array",
    "array/tests/test_rechunk.py::test_rechunk_unknown_from_array",
    "dataframe/tests/test_dataframe.py::test_head_tail",
    "dataframe/tests/test_shuffle.py::test_set_index_overlap",
    "dataframe/dask_expr/tests/test_merge.py::test_join_recursive",
    "bag/tests/test_bag.py::test_bag_map",
    "bag/tests/test_bag.py::test_tree_reductions",
    "tests/test_delayed.py::test_operators",
    "tests/test_delayed.py::test_array_delayed",
    "tests/test_local.py::TestGetAsync::test_get_with_list_top_level",
    "tests/test_local.py::TestGetAsync::test_with_HighLevelGraph",
    "tests/test_threaded.py::test_exceptions_rise_to_top",
    "tests/test_callbacks.py::test_start_state_callback",
    "tests/test_callbacks.py::test_finish_always_called",
    "tests/test_base.py::test_custom_collection",
    "tests/test_base.py::test_persist_nested",
]
#: Persisted collections hold futures; and the tests of the suite `engines`.
NOT_ON_A_CLUSTER = {
    "tests/test_base.py::test_custom_collection",
    *(test for test in SAMPLE if suites.suite_of(test.partition("::")[0]) == "engines"),
}
BY_DESIGN = "tests/test_local.py::test_callback"


@needs_dask
@pytest.mark.slow
@pytest.mark.parametrize("engine", ["threaded", "processes", "cluster"])
def test_a_sample_of_dasks_tests_passes(engine):
    sample, by_design = SAMPLE, BY_DESIGN
    if engine == "cluster":
        sample = [test for test in SAMPLE if test not in NOT_ON_A_CLUSTER]
        by_design = "tests/test_base.py::test_get_scheduler"
    done, printed = run.run_engine(engine, [*sample, by_design], n_processes=0)
    assert not done.broken
    assert done.having("failed") == [], printed
    assert sorted(done.having("passed")) == sorted(sample)
    assert done.having("deselected") == [by_design]
    done.tests.pop(by_design)
    assert all(found["graphs"] for found in done.tests.values())
    assert run.judge([done])


@needs_dask
@pytest.mark.slow
def test_tests_of_dask_distributed_are_skipped_also_where_it_is_installed():
    test = "array/tests/test_array_core.py::test_from_delayed_future"
    done, _ = run.run_engine("threaded", [test], n_processes=0)
    assert done.having("skipped") == [test]


NO_TESTS = executor_suite.why_not()


@pytest.mark.skipif(bool(NO_TESTS), reason=NO_TESTS)
@pytest.mark.slow
def test_a_sample_of_pythons_executor_tests_passes():
    sample = ["AsCompletedTests.test_no_timeout", "ExecutorTest.test_submit_keyword"]
    by_design = "ThreadPoolExecutorTest.test_default_workers"
    done, printed = run.run_executor([*sample, by_design])
    assert not done.broken
    assert done.having("failed") == [], printed
    assert sorted(done.having("passed")) == sorted(sample)
    assert done.having("deselected") == [by_design]
    assert run.judge([done])


def test_each_deselected_executor_test_has_one_reason():
    listed = [test for entry in executor_deselected.LIST for test in entry.tests]
    assert len(listed) == len({*listed})
    assert all(entry.reason for entry in executor_deselected.LIST)


@needs_dask
def test_each_test_file_of_dask_is_in_a_suite_or_left_out_with_a_reason():
    folder = run.dask_folder()
    files = [path.relative_to(folder).as_posix() for path in folder.rglob("tests/test_*.py")]
    assert len(files) > 100
    unknown = [
        file
        for file in files
        if suites.suite_of(file) is None and not any(map(file.startswith, suites.LEFT_OUT))
    ]
    assert unknown == []


@needs_dask
def test_listed_files_and_tests_exist():
    folder = run.dask_folder()
    for places in suites.SUITES.values():
        for place in places:
            assert (folder / place).exists(), place
    for entry in deselected.DESELECTED:
        for test in entry.tests:
            file, *_, name = test.partition("[")[0].split("::")
            source = (folder / file).read_text(encoding="utf-8")
            assert re.search(rf"^ *(def|class) {name}\b", source, re.MULTILINE), test


def test_each_deselected_test_has_one_reason_on_an_engine():
    for engine in ENGINES:
        listed = [
            test
            for entry in deselected.DESELECTED
            if engine in entry.engines
            for test in entry.tests
        ]
        assert len(listed) == len({*listed})
    assert all(entry.reason and {*entry.engines} <= {*ENGINES} for entry in deselected.DESELECTED)


def test_suites_that_are_not_run_on_an_engine_have_a_reason():
    assert {*suites.NOT_ON} <= {*ENGINES}
    for not_run in suites.NOT_ON.values():
        assert {*not_run} <= {*suites.SUITES}
        assert all(not_run.values())


def found(outcome, text=""):
    return run.Found(outcome=outcome, seconds=1.5, graphs=10, text=text)


def test_table_has_a_row_for_each_suite_and_one_for_all():
    tests = {
        "bag/tests/test_bag.py::test_a": found("passed"),
        "bag/tests/test_bag.py::test_b": found("listed"),
        "tests/test_base.py::test_c": found("skipped"),
    }
    assert list(run.rows(run.Run("sync", 7.0, tests))) == [
        ["sync", "bag", "1", "0", "0", "1", "20", "3"],
        ["sync", "base", "0", "0", "1", "0", "10", "2"],
        ["sync", "all", "1", "0", "1", "1", "30", "7"],
    ]


@pytest.mark.parametrize(
    ("ours", "dasks", "is_well", "says"),
    [
        ("passed", "passed", True, ""),
        ("deselected", "passed", True, ""),
        ("failed", "passed", False, "test_a failed\nE   boo"),
        ("listed", "passed", False, "test_a passes: take it from deselected.py"),
        ("failed", "failed", True, "dask-threaded: test_a failed: put it into deselected.py"),
    ],
)
def test_the_verdict_compares_results_with_the_expected_ones(ours, dasks, is_well, says, capsys):
    runs = [
        run.Run("threaded", 1.0, {"test_a": found(ours, "E   boo")}),
        run.Run("dask-threaded", 1.0, {"test_a": found(dasks, "E   boo")}),
    ]
    assert run.judge(runs) is is_well
    assert says in capsys.readouterr().out


def test_a_run_that_broke_off_is_no_success(capsys):
    assert not run.judge([run.Run("sync", 1.0, broken="pytest ended with 3")])
    assert "pytest ended with 3" in capsys.readouterr().out
