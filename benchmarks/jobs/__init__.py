"""Calls with amounts, conditions and a record, and commands: weft beside dask and HyperQueue."""
