"""The study: the workloads of dask's study of scaling and of a manager that accumulates."""
