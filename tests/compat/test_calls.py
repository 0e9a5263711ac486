"""Every call of dask.distributed does with weft what docs/from_dask_calls.md says."""

from __future__ import annotations

import pytest

from tests.compat.calls import SECTIONS
from tests.compat.table import PAGE, cells_of, outcomes_in_process, shown

pytestmark = pytest.mark.slow

#: Their rows start clusters, most of them with processes.
OF_CLUSTERS = ["Clusters", "Plugins and preloaded modules", "Memory and scheduling"]
OF_CALLS = [heading for heading in SECTIONS if heading not in OF_CLUSTERS]


@pytest.fixture(scope="module")
def page():
    return PAGE.read_text(encoding="utf-8")


def test_each_call_has_a_row_in_which_weft_does_not_fail(page):
    cells = cells_of(page)
    assert [*cells] == [call.name for rows in SECTIONS.values() for call in rows]
    assert [name for name, (_, weft) in cells.items() if weft.startswith("fails")] == []


@pytest.mark.parametrize(
    "headings",
    [
        pytest.param(OF_CALLS, id="calls"),
        pytest.param(
            OF_CLUSTERS,
            id="clusters",
            marks=pytest.mark.thorough("a cluster for each row, as users start them"),
        ),
    ],
)
def test_a_call_ends_as_the_page_says(page, headings):
    pytest.importorskip("distributed", reason="needs the extra 'test'")
    found = outcomes_in_process("weft", headings)
    said = {name: weft for name, (_, weft) in cells_of(page).items() if name in found}
    calls = {call.name: call for heading in headings for call in SECTIONS[heading]}
    assert said == {name: shown(calls[name], outcome) for name, outcome in found.items()}
