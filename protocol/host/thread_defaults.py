"""How many threads numerical libraries start in a process that runs tasks."""

from __future__ import annotations

from typing import Final

#: More threads than the process has tasks would compete for the same cores. Applied only where the
#: user has set nothing.
THREAD_DEFAULTS: Final = {
    "MKL_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
