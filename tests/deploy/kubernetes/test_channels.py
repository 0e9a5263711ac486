"""Frames of a forwarded port, in whatever pieces they arrive."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.deploy.kubernetes.peer import BEGIN, CLOSE, frame
from weft.deploy.kubernetes.channels import Channels, NotForwarding, data_frame

parts = st.lists(st.binary(min_size=1, max_size=300), max_size=8)


@given(parts, st.data())
def test_data_is_the_same_however_it_is_cut(messages: list[bytes], draw: st.DataObject) -> None:
    stream = BEGIN + b"".join(frame(b"\x00" + message) for message in messages) + CLOSE
    cuts = draw.draw(st.lists(st.integers(0, len(stream)), max_size=10).map(sorted))
    channels, data = Channels(), b""
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        data += channels.receive(stream[start:stop])
    assert data == b"".join(messages)
    assert channels.has_ended
    assert channels.failure == ""


def test_the_reason_of_a_failure_is_kept() -> None:
    channels = Channels()
    assert channels.receive(BEGIN + frame(b"\x01no such port") + frame(b"\x00late")) == b""
    assert (channels.has_ended, channels.failure) == (True, "no such port")
    closed = Channels()
    closed.receive(BEGIN + frame(b"\x03\xf3the pod is gone", 8))
    assert closed.failure == "the pod is gone"


@pytest.mark.parametrize(
    "sent",
    [
        frame(b"\x02port"),
        frame(b"x", 3),
        frame(b"x", 0),
        frame(b"\x00x", is_last=False) + frame(b"\x00y"),
        data_frame(b"x", b"abcd"),
        b"\x82\x7f" + (1 << 40).to_bytes(8, "big"),
    ],
)
def test_bytes_without_a_meaning_are_refused(sent: bytes) -> None:
    with pytest.raises(NotForwarding):
        Channels().receive(BEGIN + sent)
