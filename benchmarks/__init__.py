"""Weft beside its peers, on the same machine and the same work: ``python -m benchmarks.run``."""
