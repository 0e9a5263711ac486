"""The garbage collector, held back while thousands of futures are made at once."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused_collector() -> Iterator[None]:
    """Let no automatic collection start in this block, which makes many objects and no garbage.

    Each collection would visit the new objects, find them alive and move them to an older
    generation, dozens of times per batch, and full collections would follow: at a million futures
    that was half the time of `map`. If collections became due meanwhile, one is made after the
    block. No user code runs in it.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def resumed_collector() -> Iterator[None]:
    """Let collections start in this block of a `paused_collector`: it may take long."""
    if gc.isenabled():
        yield
        return
    gc.enable()
    try:
        yield
    finally:
        gc.disable()
