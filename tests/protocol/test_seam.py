"""What a kernel and its features declare, as one declaration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest

from weft.protocol.seam import joined


@dataclass(frozen=True)
class Part:
    name: str
    begun: tuple[Callable[[], object], ...] = ()
    records: tuple[type, ...] = ()
    table: Mapping[str, int] = field(default_factory=dict)
    kinds: frozenset[str] = frozenset()
    chosen: tuple[int, int] | None = None


KERNEL = Part("kernel", table={"a": 1})


def test_rows_are_joined_in_the_order_of_the_features():
    one = Part("one", begun=(list, tuple), table={"b": 2}, kinds=frozenset({"x"}))
    two = Part("two", begun=(dict,), records=(int,), kinds=frozenset({"y"}), chosen=(1, 1))
    assert joined(KERNEL, [one, two]) == Part(
        "kernel", (list, tuple, dict), (int,), {"a": 1, "b": 2}, frozenset({"x", "y"}), (1, 1)
    )


def test_the_declaration_of_a_kernel_alone_is_the_same():
    assert joined(KERNEL, []) == KERNEL


@pytest.mark.parametrize(
    ("features", "found"),
    [
        ([Part("one", table={"a": 2})], "'kernel' and 'one' both declare 'a' in `table`"),
        (
            [Part("one", table={"b": 2}), Part("two", table={"b": 2})],
            "'one' and 'two' both declare 'b' in `table`",
        ),
        ([Part("one", records=(int, int))], "'one' and 'one' both declare <class 'int'>"),
        ([Part("one", begun=(list,)), Part("two", begun=(list,))], "both declare .* in `begun`"),
        (
            [Part("one", kinds=frozenset("x")), Part("two", kinds=frozenset("x"))],
            "both declare 'x' in `kinds`",
        ),
        (
            [Part("one", chosen=(1, 2)), Part("two", chosen=(3, 4))],
            "'one' and 'two' both declare 'chosen' in `chosen`",
        ),
    ],
)
def test_a_row_that_two_features_declare_is_an_error(features, found):
    with pytest.raises(ValueError, match=found):
        joined(KERNEL, features)
