"""The log lines about workers that ended, or that could not be started: few, however many do."""

from __future__ import annotations

import logging

from ...protocol.deaths import DeathLog, with_advice
from .places import Place

_log = logging.getLogger("weft.supervisor")


class DeathLines:
    """Logs the first end for each reason as a warning, and counts those that follow."""

    def __init__(self) -> None:
        self._deaths = DeathLog("ended")
        self._failed_starts = DeathLog("could not be started")

    def note_death(
        self, place: Place, reason: str, lived_s: float, delay_s: float, now: float, *, quiet: bool
    ) -> None:
        """Log that a worker ended and is started again; `quiet` = another process warns of it."""
        is_first = not quiet and self._deaths.note(place.spec.name, reason, now)
        again = f"; it is started again in {delay_s:g} s" if delay_s else "; it is started again"
        _log.log(
            logging.WARNING if is_first else logging.INFO,
            "worker %s ended after %.1f s: %s",
            place.spec.name,
            lived_s,
            with_advice(reason + again, reason) if is_first else reason + again,
            extra={"code": "worker-lost", "worker": place.worker_id},
        )

    def note_failed_start(self, place: Place, why: str, delay_s: float, now: float) -> None:
        """Log that there was no process for a worker, and that it is tried again."""
        is_first = self._failed_starts.note(place.spec.name, why, now)
        _log.log(
            logging.WARNING if is_first else logging.INFO,
            "worker %s could not be started: this machine has no process for it (%s). This is "
            "tried again, the next time %s. If it goes on, end other processes, raise the "
            "limit (ulimit -u), or start fewer workers",
            place.spec.name,
            why,
            f"in {delay_s:g} s" if delay_s else "at once",
            extra={"code": "worker-not-started", "worker": place.worker_id},
        )

    def log_due(self, now: float) -> None:
        """Log the counts whose time has come."""
        self._log(self._deaths.due(now), self._failed_starts.due(now))

    def finish(self, now: float) -> None:
        """Log the counts that are left."""
        self._log(self._deaths.finish(now), self._failed_starts.finish(now))

    def _log(self, deaths: list[str], failed_starts: list[str]) -> None:
        for line in deaths:
            _log.warning("%s", line, extra={"code": "worker-lost"})
        for line in failed_starts:
            _log.warning("%s", line, extra={"code": "worker-not-started"})
