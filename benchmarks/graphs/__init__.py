"""One table of the benchmarks: the graph engines and the pools inside a process."""
