"""How each invariant of features is broken, by its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .array_breakages import ARRAY_BREAKAGES
from .avoidance_breakages import AVOIDANCE_BREAKAGES
from .blocking_breakages import BLOCKING_BREAKAGES
from .category_breakages import CATEGORY_BREAKAGES
from .conditions_breakages import CONDITIONS_BREAKAGES
from .gang_breakages import GANG_BREAKAGES
from .interruption_breakages import INTERRUPTION_BREAKAGES
from .journal_breakages import JOURNAL_BREAKAGES
from .output_breakages import OUTPUT_BREAKAGES
from .question_breakages import QUESTION_BREAKAGES
from .queue_breakages import QUEUE_BREAKAGES
from .recovery_breakages import RECOVERY_BREAKAGES
from .recurring_breakages import RECURRING_BREAKAGES
from .user_breakages import USER_BREAKAGES

#: {invariant: what breaks it}, of a `Broken` board
FEATURE_BREAKAGES: dict[str, Callable[[Any], object]] = {
    **ARRAY_BREAKAGES,
    **AVOIDANCE_BREAKAGES,
    **CATEGORY_BREAKAGES,
    **CONDITIONS_BREAKAGES,
    **GANG_BREAKAGES,
    **INTERRUPTION_BREAKAGES,
    **JOURNAL_BREAKAGES,
    **OUTPUT_BREAKAGES,
    **QUESTION_BREAKAGES,
    **BLOCKING_BREAKAGES,
    **QUEUE_BREAKAGES,
    **RECOVERY_BREAKAGES,
    **RECURRING_BREAKAGES,
    **USER_BREAKAGES,
}
