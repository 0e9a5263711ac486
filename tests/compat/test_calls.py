"""Every call of dask.distributed and of Ray does with weft what the pages of them say."""

from __future__ import annotations

import pytest

from tests.compat.calls import DISTRIBUTED
from tests.compat.ray_calls import RAY
from tests.compat.table import cells_of, outcomes_in_process, path_of, shown

pytestmark = pytest.mark.slow

#: Their rows start clusters, most of them with processes.
OF_CLUSTERS = ["Clusters", "Plugins and preloaded modules", "Memory and scheduling"]
OF_CALLS = [heading for heading in DISTRIBUTED.sections if heading not in OF_CLUSTERS]


@pytest.mark.parametrize("library", [DISTRIBUTED, RAY], ids=lambda library: library.name)
def test_each_call_has_a_row_in_which_weft_does_not_fail(library):
    cells = cells_of(library, path_of(library).read_text(encoding="utf-8"))
    assert [*cells] == [call.name for call in library.calls]
    assert [name for name, (_, weft) in cells.items() if weft.startswith("fails")] == []


@pytest.mark.parametrize(
    ("library", "headings"),
    [
        pytest.param(DISTRIBUTED, OF_CALLS, id="distributed"),
        pytest.param(
            DISTRIBUTED,
            OF_CLUSTERS,
            id="clusters",
            marks=pytest.mark.thorough("a cluster for each row, as users start them"),
        ),
        pytest.param(RAY, [*RAY.sections], id="ray"),
    ],
)
def test_a_call_ends_as_the_page_says(library, headings):
    pytest.importorskip("distributed", reason="needs the extra 'test'")
    found = outcomes_in_process(library, "weft", headings)
    page = cells_of(library, path_of(library).read_text(encoding="utf-8"))
    said = {name: weft for name, (_, weft) in page.items() if name in found}
    calls = {call.name: call for heading in headings for call in library.sections[heading]}
    assert said == {name: shown(calls[name], outcome) for name, outcome in found.items()}
