"""Makes the backend "weft" known to joblib, if the program has imported it when a client opens.

So `joblib.parallel_config("weft")` needs no import of `weft.joblib`. joblib itself is not imported,
and what the backend needs only when it is used.
"""

from __future__ import annotations

from ..protocol.host.after_import import loaded_module
from . import upper_packages


def offer_backend() -> None:
    """Register the backend, unless joblib is not loaded, or knows one of this name."""
    module = loaded_module("joblib.parallel")
    if module is None or "weft" in getattr(module, "BACKENDS", ("weft",)):
        return
    module.register_parallel_backend("weft", upper_packages.joblib_backend)
