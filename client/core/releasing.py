"""Releases keys at the scheduler, and tells late messages about them from those about new tasks.

A part of the core. It is not certain that a release was read before the scheduler's answer to a
later request; until then it is remembered, and repeated in the next session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...protocol.wire.messages import ReleaseKeys
from .submitting import close_submissions
from .watching import ask_to_answer

if TYPE_CHECKING:
    from .state import ClientState


def release(core: ClientState, keys: list[str]) -> None:
    """Release keys at the scheduler: now, or once it has answered for all wanted keys."""
    if keys:
        note_let_go(core, keys)
        if core.is_linked:
            core.to_scheduler.append(ReleaseKeys(keys=keys))


def note_let_go(core: ClientState, keys: list[str]) -> None:
    """Remember these keys until it is certain that the scheduler has read their release."""
    new = dict.fromkeys(keys)
    core.unacknowledged.update(new)
    core.let_go.update(new)
    if core.barriers:
        for key in keys:
            core.barriers.pop(key, None)  # the next one will be later


def guard(core: ClientState, keys: list[str]) -> None:
    """Set a barrier if messages about the last task of one of these keys may still arrive."""
    if not core.let_go.keys().isdisjoint(keys):
        set_barrier(core)


def set_barrier(core: ClientState) -> int:
    """Ignore messages about released keys until the release was read; return the request."""
    # The scheduler answers in order: its messages about these keys before its answer to this
    # request are about the tasks that were released or cancelled.
    close_submissions(core)
    request = ask_to_answer(core)
    core.barriers.update(dict.fromkeys(core.let_go, request))
    core.let_go = {}
    return request
