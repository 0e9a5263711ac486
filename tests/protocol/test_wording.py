from __future__ import annotations

import pytest

from weft.protocol.wording import lasting


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1.0, "0 s"),
        (0.0, "0 s"),
        (30e-6, "30 µs"),
        (0.9999e-3, "1 ms"),
        (0.25, "250 ms"),
        (0.9999, "1 s"),
        (1.5, "1.5 s"),
        (9.96, "10 s"),
        (119.4, "119 s"),
        (120, "2 min"),
        (7199, "119 min"),
        (7200, "2 h"),
        (2 * 3600 + 300, "2 h 5 min"),
        (48 * 3600, "2 d"),
        (51 * 3600, "2 d 3 h"),
    ],
)
def test_lengths_of_time_are_short_texts(seconds, text):
    assert lasting(seconds) == text
