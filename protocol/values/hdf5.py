"""Objects of h5py travel as the path of their file and their name in it, as in dask.distributed.

h5py refuses to be pickled, but `dask.array.from_array(file["x"])` puts such objects into graphs.
The reader opens the file again, so it must have the file at the same path.
"""

from __future__ import annotations

import os
import sys
from typing import Any


def reduce_hdf5(obj: Any) -> Any:
    """Return the reduced form of a file, group or dataset of h5py that is open for reading.

    Raises:
        TypeError: its file is open for writing.
    """
    h5py = sys.modules.get("h5py")
    if h5py is None or not isinstance(obj, (h5py.Group, h5py.Dataset)) or not obj:
        return NotImplemented  # a closed one is refused by h5py
    file = obj.file
    if file.mode != "r":
        raise TypeError(
            f"the HDF5 file {file.filename!r} is open for writing (mode {file.mode!r}): only one "
            "that is open for reading is sent, by its path. To write from several processes, use "
            "another format, such as zarr, or gather the data and write it here"
        )
    name = None if isinstance(obj, h5py.File) else obj.name
    return _open, (os.path.abspath(file.filename), name)


def _open(path: str, name: str | None) -> Any:
    import h5py

    file = h5py.File(path, "r")
    return file if name is None else file[name]
