"""How many workers each supervisor should have."""

from __future__ import annotations

import pytest

from weft.client.scaling import spread


@pytest.mark.parametrize(
    ("places", "n", "wanted"),
    [
        ({}, 5, {}),
        ({"a": 2}, 5, {"a": 5}),
        ({"a": 2, "b": 0}, 4, {"a": 2, "b": 2}),
        ({"a": 2, "b": 1}, 6, {"a": 3, "b": 3}),
        ({"a": 4, "b": 1}, 3, {"a": 2, "b": 1}),
        ({"a": 4, "b": 1}, 0, {"a": 0, "b": 0}),
        ({"a": 1}, -2, {"a": 0}),
    ],
)
def test_the_fewest_get_more_and_the_most_give_up(places, n, wanted):
    assert spread(places, n) == wanted
