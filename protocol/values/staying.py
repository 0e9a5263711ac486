"""Values that are more than their pickle."""

from __future__ import annotations


class Staying:
    """A value that is never replaced by what its pickle gives, on disk or in shared memory.

    Its readers elsewhere get copies, which lack something.
    """

    __slots__ = ()

    @property
    def must_stay(self) -> bool:
        """Whether this one has what a copy lacks."""
        return True
