"""An isolated call is measured by what its child has used, unless it was short."""

from __future__ import annotations

import subprocess
import sys
import time

from weft.worker.isolation.measuring import CallMeter
from weft.worker.slots.usage import MEASURED_NS


def measured(meter, *, for_ns=0, is_fresh=False):
    meter.begin(is_fresh=is_fresh)
    until = time.perf_counter_ns() + for_ns
    while time.perf_counter_ns() < until:
        pass
    return meter.end(is_fresh=is_fresh)


def test_a_short_call_is_measured_only_when_it_is_asked_for(wait_until):
    meter = CallMeter()
    wait_until(lambda: measured(meter) is None)
    assert measured(meter, is_fresh=True)["peak_nbytes"] > 0


def test_a_long_call_is_measured():
    used = measured(CallMeter(), for_ns=2 * MEASURED_NS)
    assert used["cpu_us"] > 0


GROWING = """
import time
from weft.worker.isolation.measuring import CallMeter

meter = CallMeter()
before = meter.nbytes()
held = b"x" * 50_000_000
until = time.monotonic() + 10
while meter.nbytes() < before + 40_000_000 and time.monotonic() < until:
    pass
print(meter.nbytes() - before)
"""


def test_the_size_is_that_of_the_process_and_grows_with_it():
    # In a process of its own: this one may give back the garbage of other tests meanwhile.
    done = subprocess.run([sys.executable, "-c", GROWING], capture_output=True, check=True)
    assert int(done.stdout) >= 40_000_000
