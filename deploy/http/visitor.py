"""The visitor of a page, and what is shown to one. Pure.

What a visitor may do is for the scheduler to decide; this decides what a page shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ...protocol.wire.levels import Level

#: The field of forms that only pages of the same visit have.
FORM_TOKEN: Final = "form"


@dataclass(frozen=True, slots=True)
class Visitor:
    """The visitor who looks at a page.

    Attributes:
        level: what the visitor may do.
        user: whose token has made the link; "" = one without a user.
        visit: the pass of the visit, with which questions are asked; "" = there is none.
        form_token: what the forms of this visit have.
    """

    level: Level = Level.VIEW
    user: str = ""
    visit: str = ""
    form_token: str = ""

    @property
    def may_read(self) -> bool:
        """Whether to show arguments, tracebacks, stacks and logs: those are for clients."""
        return self.level >= Level.CLIENT

    @property
    def may_order(self) -> bool:
        """Whether to show buttons."""
        return self.level >= Level.ADMIN

    @property
    def name(self) -> str:
        """The visitor, for the header of pages; "" = one who may look."""
        if self.level < Level.CLIENT:
            return ""
        return self.user or self.level.label


#: One who may look, and nothing else.
LOOKING: Final = Visitor()
