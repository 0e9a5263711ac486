"""The features of a client, in their order.

The order is that in which the hooks of one event are called: a session is linked with the leases
and calls of coordination first, which the tasks that were submitted before rely upon, and then with
the questions about them. Plugins look at the answers to questions before those who asked.
"""

from __future__ import annotations

from typing import Final

from ..feature import ClientFeature
from . import (
    actors,
    callers,
    cluster,
    conditions,
    coordination,
    notices,
    plugins,
    puts,
    questions,
)

FEATURES: Final[tuple[ClientFeature, ...]] = (
    actors.FEATURE,
    callers.FEATURE,
    conditions.FEATURE,
    puts.FEATURE,
    coordination.FEATURE,
    plugins.FEATURE,
    questions.FEATURE,
    cluster.FEATURE,
    notices.FEATURE,
)
