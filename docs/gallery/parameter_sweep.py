"""Parameter sweep: an epidemic for each combination of two parameters, ten runs of each."""

import csv
import itertools
import random
import statistics

import weft


def epidemic(infection_rate, recovery_rate, seed):
    """Simulate 300 people for up to 200 days; return how many were ever infected."""
    rng = random.Random(seed)
    healthy, infected, recovered = 295, 5, 0
    for _ in range(200):
        if infected == 0:
            break
        risk = 1 - (1 - infection_rate / 300) ** infected
        new = sum(rng.random() < risk for _ in range(healthy))
        cured = sum(rng.random() < recovery_rate for _ in range(infected))
        healthy, infected, recovered = healthy - new, infected + new - cured, recovered + cured
    return recovered + infected


rates = [0.1, 0.2, 0.3, 0.4]
recoveries = [0.1, 0.2]
points = [*itertools.product(rates, recoveries, range(10))]  # each call has its own seed

with weft.Client(n_workers=2, threads_per_worker=1) as client:
    # One list per parameter, as for the built-in map.
    futures = client.map(epidemic, *zip(*points, strict=True), key="epidemic")
    point_of = dict(zip(futures, points, strict=True))

    sizes = {}
    with open("sweep.csv", "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["infection_rate", "recovery_rate", "seed", "size"])
        # In the order in which they end: what is done is on the disk if the program is stopped.
        for future, size in weft.as_completed(futures, with_results=True):
            rows.writerow([*point_of[future], size])
            sizes.setdefault(point_of[future][:2], []).append(size)

print(f"{len(points)} runs")
print("infection  recovery  mean size")
for (rate, recovery), found in sorted(sizes.items()):
    print(f"{rate:9}  {recovery:8}  {statistics.mean(found):9.1f}")
