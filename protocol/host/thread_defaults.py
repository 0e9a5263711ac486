"""The number of threads that numerical libraries start in a process that runs tasks."""

from __future__ import annotations

from typing import Final

#: With more threads than the process runs tasks, they would compete for the same cores. Applied
#: only to variables that the user has not set.
THREAD_DEFAULTS: Final = {
    "MKL_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
