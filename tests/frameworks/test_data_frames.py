"""Data frames of dask: its expressions are optimized here, and what is left runs on the workers."""

from __future__ import annotations

import pytest

pytest.importorskip("dask.dataframe", reason="dask is missing: pip install 'weft[test]'")

import dask.dataframe as dd
import numpy as np
import pandas as pd
from pandas.testing import assert_frame_equal, assert_series_equal

import weft

pytestmark = [
    pytest.mark.slow,
    pytest.mark.shares_resources,
    pytest.mark.usefixtures("client"),
    # What these libraries use of each other may be on its way out.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]

N_ROWS = 2000


@pytest.fixture(scope="module")
def rides():
    random = np.random.default_rng(1)
    start = pd.Timestamp("2024-01-01")
    return pd.DataFrame(
        {
            "at": start + pd.to_timedelta(np.sort(random.integers(0, 80_000, N_ROWS)), unit="min"),
            "zone": random.integers(0, 12, N_ROWS),
            "km": random.gamma(2.0, 3.0, N_ROWS),
            "tip": random.gamma(1.0, 2.0, N_ROWS),
            "note": [f"ride {i}" for i in range(N_ROWS)],
        }
    )


@pytest.fixture(scope="module")
def zones():
    return pd.DataFrame({"zone": range(12), "side": ["west", "east"] * 6})


@pytest.fixture(scope="module")
def path(rides, client, tmp_path_factory):
    """A parquet file for each of eight parts, written by the workers."""
    folder = str(tmp_path_factory.mktemp("rides"))
    dd.from_pandas(rides, npartitions=8, sort=False).to_parquet(folder, write_index=False)
    return folder


def expressions(frame, name):
    """Return the expressions of a kind that are left of a frame when it is simplified."""
    found = frame.expr.simplify().walk()
    return [expr for expr in found if type(expr).__name__.startswith(name)]


def test_only_columns_that_are_used_are_read(rides, path):
    frame = dd.read_parquet(path)
    frame["speed"] = frame.km * 2
    total = frame.groupby("zone").speed.sum()
    (read,) = expressions(total, "ReadParquet")
    assert sorted(read.operand("columns")) == ["km", "zone"]
    expected = rides.assign(speed=rides.km * 2).groupby("zone").speed.sum()
    assert_series_equal(total.compute().sort_index(), expected)


def test_a_condition_is_left_to_the_reader(rides, path):
    frame = dd.read_parquet(path, filesystem="arrow")
    near = frame[frame.zone < 3][["zone", "tip"]]
    (read,) = expressions(near, "ReadParquet")
    assert read.operand("filters")
    expected = rides[rides.zone < 3].sort_values("tip")[["zone", "tip"]]
    found = near.compute().sort_values("tip")  # files are read in another order
    assert_frame_equal(found.reset_index(drop=True), expected.reset_index(drop=True))


def test_parts_that_nobody_asked_for_are_not_read(rides, path):
    frame = dd.read_parquet(path)
    part = frame.partitions[1]
    n_tasks = len(part.optimize().__dask_graph__())
    assert n_tasks < 8
    assert len(part.compute()) == N_ROWS // 8
    assert len(frame.head(5, npartitions=2)) == 5
    assert len(frame) == N_ROWS


def test_steps_on_one_part_are_one_task(rides, path):
    frame = dd.read_parquet(path)
    steps = ((frame.km + frame.tip) * 2).fillna(0)
    assert steps.optimize().npartitions <= 8
    assert len(steps.optimize().__dask_graph__()) <= len(steps.optimize(fuse=False).dask) / 4
    assert_series_equal(
        steps.compute().reset_index(drop=True), ((rides.km + rides.tip) * 2).fillna(0)
    )


def test_equal_parts_of_a_program_are_computed_once(rides, path):
    frame = dd.read_parquet(path)
    share = frame.tip / frame.tip.sum()
    assert len({e._name for e in expressions(share, "ReadParquet")}) == 1
    assert np.isclose(share.sum().compute(), 1)


def test_a_small_table_is_joined_without_a_shuffle(rides, zones, path):
    frame = dd.read_parquet(path)
    joined = frame.merge(dd.from_pandas(zones, npartitions=1), on="zone")
    assert not expressions(joined, "Shuffle")
    sides = joined.groupby("side").tip.agg(["mean", "count"]).compute().sort_index()
    expected = rides.merge(zones, on="zone").groupby("side").tip.agg(["mean", "count"])
    assert_frame_equal(sides, expected, check_dtype=False, check_index_type=False)


def test_two_large_tables_are_shuffled(rides, path):
    frame = dd.read_parquet(path)
    notes = frame[["note", "km"]].rename(columns={"km": "km again"})
    joined = frame[["note", "tip"]].merge(notes, on="note", broadcast=False, shuffle_method="tasks")
    found = joined.compute().sort_values("tip")["km again"].to_numpy()
    assert np.array_equal(found, rides.sort_values("tip").km.to_numpy())


def test_an_index_is_set_and_used(rides, path):
    by_time = dd.read_parquet(path)[["at", "km"]].set_index("at")
    assert by_time.known_divisions
    january = by_time.loc["2024-01"].km.sum().compute()
    assert np.isclose(january, rides[rides["at"].dt.month == 1].km.sum())
    weeks = by_time.km.resample("7D").sum().compute()
    expected = rides.set_index("at").km.resample("7D").sum()
    assert_series_equal(weeks, expected, check_freq=False)


def longest(rides):
    return rides.nlargest(2, "km")[["km", "tip"]]


def test_a_function_of_pandas_is_applied_to_groups(rides, path):
    frame = dd.read_parquet(path)
    meta = {"km": float, "tip": float}
    found = frame.groupby("zone").apply(longest, meta=meta).compute()
    expected = rides.groupby("zone").apply(longest)
    assert np.array_equal(np.sort(found.km.to_numpy()), np.sort(expected.km.to_numpy()))


def test_a_frame_that_is_kept_is_computed_once(rides, path, client):
    kept = dd.read_parquet(path).persist()
    weft.wait(kept)
    assert len(weft.futures_of(kept)) == kept.npartitions
    assert np.isclose(kept.tip.mean().compute(), rides.tip.mean())
    counts = kept.zone.value_counts().compute().sort_index()
    assert counts.tolist() == rides.zone.value_counts().sort_index().tolist()
