"""A task's place in line, as one integer (smaller runs earlier).

    user priority (15 bits) | generation (23 bits) | rank (25 bits)    = 63 bits: one comparison

- *User priority* -9999..9999; higher runs earlier.
- *Generation*: submissions that follow each other within FIFO_TIMEOUT_S share one; later ones come
  after.
- *Rank*: the position in its generation: the one that the client gave, or that of its arrival; of
  the latter, a task with dependencies takes the place of the last among those of its own
  generation. So a task is placed right behind the last input that it needs: chains and subtrees are
  finished before new roots are begun and few intermediates live at a time. This is dask's
  last-in-first-out rule made static, at O(dependencies) per task and with no pass over the graph.

Inputs of an earlier generation count as well if they, or their like, are still to run and are not
known to be small: else all of these would run before the first of their readers, which came later.
"""

from __future__ import annotations

from typing import Final

from ....protocol.rotation import LEVEL_SHIFT
from ....protocol.wire.options import MAX_PRIORITY

#: As dask's `fifo_timeout` for submit and map.
FIFO_TIMEOUT_S: Final = 0.1

_RANK_BITS: Final = 25
_GENERATION_BITS: Final = LEVEL_SHIFT - _RANK_BITS
MAX_RANK: Final = (1 << _RANK_BITS) - 1
#: Generation and rank.
PLACE_MASK: Final = (1 << LEVEL_SHIFT) - 1
#: Later generations share the last number: their order is lost, nothing else.
MAX_GENERATION: Final = (1 << _GENERATION_BITS) - 1


def base_priority(user_priority: int, generation: int) -> int:
    """Return the part that a whole submission shares; add the rank for a task's own."""
    generation = min(generation, MAX_GENERATION)
    return ((MAX_PRIORITY - user_priority) << _GENERATION_BITS | generation) << _RANK_BITS


def rank_of(priority: int) -> int:
    """Return the rank of `priority`."""
    return priority & MAX_RANK


class Ranks:
    """The places of the tasks that come next."""

    __slots__ = ("generation", "last_submission", "next")

    def __init__(self) -> None:
        self.generation = self.next = 0
        self.last_submission = float("-inf")

    def begin(self, n_rows: int, now: float) -> None:
        """Begin another generation if the last submission was some time ago, or ranks run out."""
        is_late = now - self.last_submission > FIFO_TIMEOUT_S
        if is_late or self.next + n_rows > MAX_RANK:
            self.generation += 1
            self.next = 0
        self.last_submission = now
