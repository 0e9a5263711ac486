"""One table of the benchmarks: weft beside dask.distributed, Ray and the pools, as clusters."""
