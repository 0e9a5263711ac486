"""What the client uses of the packages above it: `deploy`, `compat` and the façade.

They import this package, and so it imports none of them: the façade, which is imported before any
module here, assigns these functions. They import what they need, and nothing else here may be
heavy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: Returns the class `LocalCluster`.
local_cluster: Callable[[], Any]
#: Makes the backend "weft" of joblib.
joblib_backend: Callable[..., object]
#: Has errors of dask.distributed name what lets it find clients of weft, while some are open.
note_what_to_install: Callable[[bool], None]
