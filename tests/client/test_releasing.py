"""A released future keeps nothing of its result in this process."""

from __future__ import annotations

import gc
import weakref

import weft


class Large:
    """A value that records when it is freed."""


def test_release_frees_the_copy_of_the_client_at_once(wait_until):
    with weft.Client(processes=False, n_workers=1, set_as_default=False) as client:
        future = client.submit(Large)
        seen = weakref.ref(future.result())
        future.release()
        wait_until(lambda: gc.collect() + 1 and seen() is None, 30)
        assert future.key
        assert future.status == "finished"
