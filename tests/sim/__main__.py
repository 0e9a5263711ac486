"""Run many seeds: `python -m tests.sim --seeds 1000`; `--seed 7` repeats one."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from . import scheduler_node
from .simulation import Simulation, SimulationFailed

#: Tasks that count in addition: the scheduler is checked after every tenth event at most. Else its
#: invariants take two thirds of a run; after every third event they still took half of it.
EXTRA_IF_SPARSE = 290


def main() -> int:
    """Run the seeds that the command line names; the exit code says whether all held."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many")
    parser.add_argument("--first", type=int, default=0, help="from which one on")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at a failure")
    parser.add_argument("--trace", action="store_true", help="print each run's checksum")
    parser.add_argument("--plan", action="store_true", help="print each run's plan")
    parser.add_argument(
        "--sessions", action="store_true", help="only connections and schedulers fail"
    )
    parser.add_argument(
        "--sparse",
        action="store_true",
        help="check the scheduler less often: more seeds in a time",
    )
    options = parser.parse_args()
    scheduler_node.EXTRA = EXTRA_IF_SPARSE * options.sparse
    seeds = range(options.first, options.first + options.seeds)
    if options.seed is not None:
        seeds = range(options.seed, options.seed + 1)
    probes: Counter[str] = Counter()
    n_events = 0
    seconds = 0.0
    failed = []
    start = time.perf_counter()
    for seed in seeds:
        simulation = Simulation(seed, traced=options.trace, sessions=options.sessions)
        if options.plan:
            print(simulation.plan)
        try:
            simulation.run()
        except SimulationFailed as error:
            failed.append(seed)
            print(f"seed {seed}: {error}", flush=True)
            print("(only with --sparse, perhaps)\n" if options.sparse else "", flush=True)
            if not options.keep_going:
                break
        if options.trace:
            print(seed, f"{simulation.world.trace:08x}", simulation.world.n_events)
        probes.update(simulation.world.probes)
        n_events += simulation.world.n_events
        seconds += simulation.world.now
    took = time.perf_counter() - start
    if not options.trace:
        print(f"{len(seeds)} seeds, {n_events} events, {seconds:.0f} virtual s in {took:.1f} s")
        for name, n in sorted(probes.items()):
            print(f"  {n:8} {name}")
        print(f"failed: {failed or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
