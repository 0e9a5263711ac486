"""A name for the content of large buffers."""

from __future__ import annotations

from collections.abc import Sequence

from ..wire.payload import Buffer


def digest_of(buffers: Sequence[Buffer]) -> str:
    """Return 32 hexadecimal digits that equal buffers have in common, on every machine.

    XXH3 reads memory as fast as it comes, fifteen times as fast as SHA-256 on one core. It
    withstands chance, and not somebody who looks for two buffers of one name: but whoever may name
    an argument of a cluster may run any code there.
    """
    import xxhash

    state = xxhash.xxh3_128()
    for buffer in buffers:
        view = memoryview(buffer).cast("B")
        # With lengths, so that bytes moved from one buffer to the next make a difference.
        state.update(b"%d:" % view.nbytes)
        state.update(view)
    digest: str = state.hexdigest()
    return digest
