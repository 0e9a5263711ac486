"""The facts that are known of a cluster, from one overview to the next. Pure: times are given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ...protocol.rates import Rate, SeenRate
from .history import ClusterHistory
from .wording import n_unfinished, short_number, short_time

#: A lower rate would be shown as 0.
_LEAST_RATE: Final = 0.05


class ClusterRates:
    """The rates of finished tasks: of all, and of each function that the last overview names."""

    def __init__(self) -> None:
        #: the rate of all tasks
        self.total: SeenRate = (None, None)
        #: {function: its rate}
        self.of_functions: dict[str, SeenRate] = {}
        self._total = Rate()
        self._of_functions: dict[str, Rate] = {}

    def observe(self, overview: Mapping[str, Any], now_s: float) -> None:
        """Take the next overview."""
        totals, n_left = overview["totals"], n_unfinished(overview["tasks"])
        self._total.observe(now_s, totals["completed"] + totals["failed"], n_left)
        self.total = self._total.seen(n_left)
        before, self._of_functions, self.of_functions = self._of_functions, {}, {}
        for function in overview["functions"]:
            name, n_left = function["name"], function["n_unfinished"]
            rate = self._of_functions[name] = before.get(name) or Rate()
            rate.observe(now_s, function["n_finished"] + function["n_failed"], n_left)
            self.of_functions[name] = rate.seen(n_left)


@dataclass
class Snapshot:
    """The facts that are known of a cluster now.

    Attributes:
        address: of the scheduler, "" if there is none.
        overview: the last answer to the question `overview`; {} before the first.
        workers: {address: description}; each at most as old as one pass over all pages takes.
        down: why the scheduler does not answer; "" if it does.
        rates: of its tasks.
        cpu_share: the part of a core that the scheduler uses; None before the second answer.
        history: the last hour, if it is asked for.
    """

    address: str = ""
    overview: dict[str, Any] = field(default_factory=dict)
    workers: dict[str, dict[str, Any]] = field(default_factory=dict)
    down: str = ""
    rates: ClusterRates = field(default_factory=ClusterRates)
    cpu_share: float | None = None
    history: ClusterHistory = field(default_factory=ClusterHistory)
    #: (time, processor seconds, epoch) of the last answer
    _cpu: tuple[float, float, int] | None = None

    def take(self, overview: dict[str, Any], now_s: float) -> None:
        """Take the next overview."""
        self.down = ""
        self.overview = overview
        self.rates.observe(overview, now_s)
        cpu = (now_s, overview["cpu_s"], overview["epoch"])
        if self._cpu is not None and self._cpu[2] == cpu[2] and cpu[0] > self._cpu[0]:
            self.cpu_share = (cpu[1] - self._cpu[1]) / (cpu[0] - self._cpu[0])
        self._cpu = cpu

    @property
    def progress(self) -> str:
        """The rate and the time that is left, for display; "" if they are not known yet."""
        per_second, eta_s = self.rates.total
        if per_second is None or per_second < _LEAST_RATE:
            return ""
        text = f"{short_number(per_second)} tasks/s"
        left = n_unfinished(self.overview["tasks"])
        if left:
            text += f", {short_number(left)} left"
            text += f" for about {short_time(eta_s)}" if eta_s is not None else ""
        return text
