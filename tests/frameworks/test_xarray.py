"""Programs of xarray, whose chunked variables are arrays of dask: files are read by the workers."""

from __future__ import annotations

import pytest

pytest.importorskip("xarray", reason="xarray is missing: pip install 'weft[test]'")

import dask
import numpy as np
import pandas as pd
import xarray as xr
import zarr.core.sync as zarr_sync

import weft

pytestmark = [
    pytest.mark.slow,
    pytest.mark.shares_resources,
    pytest.mark.usefixtures("client"),
    # What these libraries use of each other may be on its way out.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]


@pytest.fixture(scope="module", autouse=True)
def zarr_ends():
    """zarr keeps threads and an event loop until the end of the process."""
    yield
    zarr_sync.cleanup_resources()


@pytest.fixture(scope="module")
def weather():
    """Two years of days at 4 x 6 places, in memory."""
    days = pd.date_range("2023-01-01", "2024-12-31", freq="D")
    random = np.random.default_rng(0)
    noise = random.normal(size=(days.size, 4, 6))
    season = 10 * np.sin(2 * np.pi * days.dayofyear.to_numpy() / 365.25)
    return xr.Dataset(
        {
            "temperature": (("time", "lat", "lon"), 15 + season[:, None, None] + noise),
            "rain": (("time", "lat", "lon"), random.gamma(1.0, 2.0, size=noise.shape)),
        },
        {"time": days, "lat": [-30.0, 0.0, 30.0, 60.0], "lon": np.arange(0.0, 360.0, 60.0)},
    )


@pytest.fixture(scope="module")
def files(weather, tmp_path_factory):
    """A netCDF file for each year."""
    folder = tmp_path_factory.mktemp("weather")
    for year, part in weather.groupby("time.year"):
        part.to_netcdf(folder / f"{year}.nc", engine="scipy")
    return str(folder / "*.nc")


@pytest.fixture
def chunked(weather):
    return weather.chunk(time=100, lat=2)


def test_files_of_years_are_one_data_set(weather, files):
    with xr.open_mfdataset(files, engine="scipy", chunks={"time": 90}, parallel=True) as opened:
        assert opened.temperature.chunks[0][:2] == (90, 90)
        xr.testing.assert_allclose(opened.mean("time").compute(), weather.mean("time"))
        at_equator = opened.rain.sel(lat=0).resample(time="MS").sum()
        assert type(at_equator.data).__module__.startswith("dask.")
        xr.testing.assert_allclose(
            at_equator.compute(), weather.rain.sel(lat=0).resample(time="MS").sum()
        )


def test_each_month_is_compared_with_its_mean(weather, chunked):
    def anomalies(data):
        months = data.groupby("time.month")
        return months - months.mean("time")

    xr.testing.assert_allclose(
        anomalies(chunked.temperature).compute(), anomalies(weather.temperature)
    )
    spread = chunked.groupby("time.season").std().compute()
    xr.testing.assert_allclose(spread, weather.groupby("time.season").std())


def heat(temperature, rain):
    return np.where(rain < 1, temperature, temperature - 2)


def trend(values):
    days = np.arange(values.shape[-1]) - (values.shape[-1] - 1) / 2
    return (values * days).sum(axis=-1) / (days**2).sum()


def test_functions_of_numpy_are_applied_to_chunks(weather, chunked):
    def felt(data):
        return xr.apply_ufunc(heat, data.temperature, data.rain, dask="parallelized")

    xr.testing.assert_allclose(felt(chunked).compute(), felt(weather))

    def trends(data):
        return xr.apply_ufunc(
            trend,
            data.temperature,
            input_core_dims=[["time"]],
            dask="parallelized",
            output_dtypes=[float],
        )

    xr.testing.assert_allclose(trends(chunked.chunk(time=-1)).compute(), trends(weather))


def above_its_mean(block):
    return block - block.mean("lon")


def test_functions_of_xarray_are_applied_to_blocks(weather, chunked):
    mapped = xr.map_blocks(above_its_mean, chunked.rain, template=chunked.rain)
    xr.testing.assert_allclose(mapped.compute(), above_its_mean(weather.rain))


def test_windows_cross_chunks(weather, chunked):
    def weeks(data):
        return data.temperature.rolling(time=7, center=True).mean()

    xr.testing.assert_allclose(weeks(chunked).compute(), weeks(weather))
    halves = chunked.rain.coarsen(lat=2, lon=3).max()
    xr.testing.assert_allclose(halves.compute(), weather.rain.coarsen(lat=2, lon=3).max())


def test_a_data_set_stays_on_the_workers(weather, chunked):
    kept = chunked.persist()
    assert len(weft.futures_of(kept)) == 2 * 8 * 2
    xr.testing.assert_allclose(kept.sum().compute(), weather.sum())
    warm, wet = dask.compute(kept.temperature.max(), kept.rain.max())
    assert warm == weather.temperature.max()
    assert wet == weather.rain.max()


def test_workers_write_a_zarr_store(weather, chunked, tmp_path):
    pytest.importorskip("zarr", reason="zarr is missing: pip install 'weft[test]'")
    path = str(tmp_path / "weather.zarr")
    writing = chunked.to_zarr(path, compute=False, zarr_format=2)
    writing.compute()
    with xr.open_zarr(path) as opened:
        assert dict(opened.chunksizes)["time"][0] == 100
        xr.testing.assert_identical(opened.load(), weather)
