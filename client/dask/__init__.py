"""What dask's collections and users of dask.distributed expect of a client."""

from __future__ import annotations
