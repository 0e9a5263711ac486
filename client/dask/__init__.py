"""The parts of a client that dask's collections, and users of dask.distributed, expect."""

from __future__ import annotations
