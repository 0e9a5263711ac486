"""The messages and actions of a core after one event, and which of them a test looks at.

A test that looks at some of it has to look at all, or state the rest: then nothing else was sent.
What only prepares a test need not be looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import pytest

from weft.protocol.wire.messages import Resubmitted

#: What ends each start of a session but the first, which no test has to look at.
REGULAR: Final = Resubmitted


class Outbox(list[Any]):
    """Messages or actions, in order. What is compared, unpacked or indexed is looked at."""

    def __init__(self, items: Iterable[Any]) -> None:
        super().__init__(items)
        self.is_looked_at = False
        #: Indices of what was looked at.
        self._seen: set[int] = set()

    def of(self, kind: type) -> list[Any]:
        """Return the items of one kind; the others are not looked at."""
        self.is_looked_at = True
        return [self[i] for i, x in enumerate(super().__iter__()) if isinstance(x, kind)]

    def unseen(self) -> list[str]:
        """Return the kinds of the items that were not looked at; then they are."""
        unseen = [x for i, x in enumerate(super().__iter__()) if i not in self._seen]
        self._look(range(len(self)))
        return [type(x).__name__ for x in unseen if not isinstance(x, REGULAR)]

    def _look(self, places: Iterable[int]) -> None:
        self.is_looked_at = True
        self._seen.update(places)

    def __getitem__(self, place: Any) -> Any:
        found = range(len(self))[place]
        self._look(found if isinstance(place, slice) else [found])
        return super().__getitem__(place)

    def __iter__(self) -> Iterator[Any]:
        self.is_looked_at = True
        for i, item in enumerate(super().__iter__()):
            self._seen.add(i)
            yield item

    def __contains__(self, wanted: object) -> bool:
        self._look(i for i, x in enumerate(super().__iter__()) if x == wanted)
        return super().__contains__(wanted)

    def __eq__(self, other: object) -> bool:
        self._look(range(len(self)))
        return super().__eq__(other)

    __hash__ = None  # type: ignore[assignment]


#: The out-boxes of this test, by event.
_events: list[list[Outbox]] = []


def outboxes(*lists: Iterable[Any]) -> list[Outbox]:
    """Return what one event has sent, as out-boxes."""
    _events.append([Outbox(items) for items in lists])
    return _events[-1]


def rest() -> list[str]:
    """Return the kinds of what events have sent beside what the test has looked at."""
    looked_at = [boxes for boxes in _events if any(box.is_looked_at for box in boxes)]
    return [kind for boxes in looked_at for box in boxes for kind in box.unseen()]


@pytest.fixture(autouse=True)
def nothing_else_was_sent() -> Iterator[None]:
    """Fail a test that knows only some of what an event has sent; for a conftest.py."""
    _events.clear()
    yield
    left = rest()
    _events.clear()
    assert not left, f"sent as well: {left}; look at them, or state it by `outbox.rest`"
