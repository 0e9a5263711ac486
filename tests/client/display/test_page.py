"""Pages in cells: a frame, and what is seen where front ends leave frames out."""

from __future__ import annotations

from weft.client.display.page import in_cell


def test_a_frame_has_a_text_for_front_ends_that_leave_frames_out():
    text = in_cell("<p>drawn</p>", 300)
    assert 'srcdoc="&lt;p&gt;drawn' in text
    assert "not trusted" in text.partition(">")[2]
