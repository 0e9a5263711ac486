from __future__ import annotations

import pytest

from weft.protocol.wording import grouped, how_to_install, lasting, listed, rated, sized


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
        (245, "4 min 5 s"),
        (605, "10 min"),
        (7199, "119 min"),
        (7200, "2 h"),
        (2 * 3600 + 300, "2 h 5 min"),
        (48 * 3600, "2 d"),
        (51 * 3600, "2 d 3 h"),
    ],
)
def test_lengths_of_time_are_short_texts(seconds, text):
    assert lasting(seconds) == text


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (100 << 20, "100 MiB"),
        ((1 << 30) - 1, "1 GiB"),
        (25.3 * 2**30, "25.3 GiB"),
        (3 << 40, "3 TiB"),
        (5 << 50, "5120 TiB"),
    ],
)
def test_sizes_have_binary_units(nbytes, text):
    assert sized(nbytes) == text


def test_large_numbers_are_in_groups_and_small_rates_have_two_digits():
    assert [grouped(n) for n in (0, 999, 1234567)] == ["0", "999", "1 234 567"]
    assert grouped(12345, "\u202f") == "12\u202f345"
    assert [rated(r) for r in (0, 1e-6, 0.05, 2.54, 9.99, 12345.6)] == [
        *("0", "< 0.01", "0.05", "2.5", "10", "12 346"),
    ]


@pytest.mark.parametrize(
    ("names", "n", "text"),
    [
        ([], 0, ""),
        (["a"], 1, "a"),
        (["a", "b"], 2, "a, b"),
        (["a", "b"], 5, "a, b and 3 more"),
    ],
)
def test_the_first_names_are_listed_with_the_number_of_the_others(names, n, text):
    assert listed(names, n) == text


def test_the_needs_of_an_optional_part_are_installed_from_a_checkout_as_well():
    text = how_to_install("postgres")
    assert (
        text == "pip install 'weft[postgres]', or in a checkout of weft: pip install '.[postgres]'"
    )
