"""`weft.Category`, and what is sent of it."""

from __future__ import annotations

import pytest

from weft import Category
from weft.client.calls.options import make_options
from weft.protocol.amounts import BESIDE
from weft.protocol.errors import InvalidAmount, InvalidDuration
from weft.protocol.wire.options import NO_OPTIONS


def test_a_category_is_sent_with_its_mode_and_maximum():
    options = make_options({"category": Category("fits", "min waste", "2GB")})
    assert options.category == {"name": "fits", "mode": "min waste", "max_nbytes": 2 * 10**9}
    assert options.held_in == ("category", "fits")


def test_without_more_most_tasks_are_to_end_and_a_worker_is_the_maximum():
    facts = make_options({"category": Category("fits")}).category
    assert facts == {"name": "fits", "mode": "max throughput", "max_nbytes": 0}


@pytest.mark.parametrize("name", ["", "x" * 100_000, None])
def test_a_wrong_name_is_refused(name):
    with pytest.raises(ValueError, match="a name of 1 to"):
        Category(name)


def test_a_wrong_mode_is_refused_and_the_nearest_is_named():
    with pytest.raises(ValueError, match="did you mean 'min waste'"):
        Category("fits", "min_waste")


@pytest.mark.parametrize("size", ["8 bananas", -1, 0, True, float("inf")])
def test_a_wrong_maximum_is_refused(size):
    with pytest.raises(InvalidAmount):
        Category("fits", max_memory=size)


def test_a_name_alone_is_refused():
    with pytest.raises(TypeError, match=r"weft.Category"):
        make_options({"category": "fits"})


def test_memory_is_given_only_once():
    with pytest.raises(ValueError, match="say the same thing"):
        make_options({"category": Category("fits"), "memory": "1GB"})


@pytest.mark.parametrize("one", [{"cores": 1}, {"resources": {"cores": 1.0}}])
def test_a_call_that_names_one_core_says_so_to_its_category(one):
    assert make_options({"category": Category("fits"), **one}).resources == {"cores": 1}
    assert make_options(one) is NO_OPTIONS


def test_other_cores_are_sent_as_ever_with_a_category():
    for cores, asked in [(2, {"cores": 2}), (0, {BESIDE: 1}), (None, {})]:
        made = make_options({"category": Category("fits"), "cores": cores})
        assert made.resources == asked


def test_a_multiple_is_sent_with_an_idempotent_category():
    category = Category("fits", idempotent=True, abort_stragglers=3)
    facts = make_options({"category": category}).category
    assert (facts["straggler_multiple"], facts["copies_stragglers"]) == (3.0, False)


@pytest.mark.parametrize("name", ["abort_stragglers", "copy_stragglers"])
def test_a_multiple_needs_calls_that_may_run_again(name):
    with pytest.raises(ValueError, match=f"{name}= .*idempotent=True"):
        Category("fits", **{name: 3.0})


@pytest.mark.parametrize("name", ["abort_stragglers", "copy_stragglers"])
@pytest.mark.parametrize("multiple", [0.5, -1, True, float("nan"), float("inf"), "3", 1e7])
def test_a_wrong_multiple_is_refused(name, multiple):
    with pytest.raises(ValueError, match=f"{name}="):
        Category("fits", idempotent=True, **{name: multiple})


def test_stragglers_are_ended_or_copied():
    with pytest.raises(ValueError, match="not both"):
        Category("fits", idempotent=True, abort_stragglers=3.0, copy_stragglers=3.0)
    category = Category("fits", idempotent=True, copy_stragglers=2)
    assert make_options({"category": category}).category["copies_stragglers"] is True


def test_the_longest_time_of_a_category_is_the_limit_of_calls_without_one():
    brief = Category("brief", max_wall_time="2 min")
    assert make_options({"category": brief}).timeout_us == 120_000_000
    assert make_options({"category": brief}).category["max_wall_us"] == 120_000_000
    own = make_options({"category": brief, "timeout": 5})
    assert (own.timeout_us, "max_wall_us" in own.category) == (5_000_000, False)
    assert make_options({"category": Category("fits"), "timeout": None}).timeout_us == 0


@pytest.mark.parametrize("limit", [0, -1, "8 bananas"])
def test_a_wrong_longest_time_is_refused(limit):
    with pytest.raises(InvalidDuration, match="max_wall_time"):
        Category("fits", max_wall_time=limit)


def test_a_gang_of_a_category_is_refused_with_what_to_do(client):
    with pytest.raises(TypeError) as caught:
        client.submit_gang(abs, 2, -1, category=Category("fits"))
    assert str(caught.value) == (
        "category= cannot be given for a gang, also not by dask.annotate: a category gives its "
        "calls memory one by one, and limits them by what others have used; give memory= and "
        "timeout= instead"
    )
    # It is an argument of the function like any other, if it is no category.
    assert client.gather(client.submit_gang(dict, 1, category="toys")) == [{"category": "toys"}]
