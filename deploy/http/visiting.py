"""Visitors who may do more than look: what a page asks the scheduler about them, and their forms.

This process holds the token of a viewer. The right of a visitor is the scheduler's to know: each
question that takes more is asked with the pass of the visit, which the browser keeps in a cookie,
and is refused there if the visitor may not ask it. What is known here only decides what is shown.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

from ...protocol.wire.levels import Level
from .visitor import FORM_TOKEN, LOOKING, Visitor

if TYPE_CHECKING:
    from .base import Page


async def visitor_of(page: Page) -> Visitor:
    """Return who has sent a request; a pass whose visit is over is taken away.

    Raises:
        TimeoutError, WeftError: the scheduler does not answer.
    """
    gate = page.site.gate
    visit = gate.visit_of(page)
    if not visit or "Authorization" in page.request.headers:
        return LOOKING
    found = await page.site.viewer.ask_all("visit", {"pass": visit})
    if not found:
        gate.end_visit(page)
        return LOOKING
    level = Level[str(found["level"]).upper()]
    return Visitor(level, str(found["user"]), visit, gate.form_token(visit))


def is_own_form(page: Page, visitor: Visitor) -> bool:
    """Return whether a form was sent by a page of the same visit."""
    given = page.get_body_argument(FORM_TOKEN, "")
    return bool(visitor.visit) and hmac.compare_digest(given.encode(), visitor.form_token.encode())
