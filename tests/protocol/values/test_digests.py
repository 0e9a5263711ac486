"""The name of the content of large arguments: equal for equal buffers, on every machine."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from weft.protocol.values.digests import digest_of

_buffers = st.lists(st.binary(max_size=40), max_size=5)


def test_digest_never_changes():
    # Clients of several releases share the arguments of a cluster.
    assert digest_of([b"abc", b""]) == "aeed7d578f6a23f6a21d202a15fc7ac0"


@given(_buffers, _buffers)
def test_different_buffers_have_different_digests(one, other):
    assert (digest_of(one) == digest_of(other)) == (one == other)


@given(_buffers)
def test_kind_of_buffer_makes_no_difference(buffers):
    kinds = (bytes, bytearray, memoryview)
    mixed = [kinds[i % 3](buffer) for i, buffer in enumerate(buffers)]
    assert digest_of(mixed) == digest_of(buffers)
