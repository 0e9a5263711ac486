"""ETL: clean a folder of CSV files, write one Parquet file for each, and aggregate them."""

import random
from pathlib import Path

import pandas as pd

import weft


def export(path, seed):
    """Write a CSV file as a shop's till would: with amounts that are missing or no number."""
    rng = random.Random(seed)
    amounts = ["", "n/a", *(f"{rng.uniform(1, 90):.2f}" for _ in range(18))]
    lines = [
        f"2030-01-{seed + 1:02} {rng.randrange(9, 18):02}:00,{rng.choice('NESW')},{amount}"
        for amount in rng.choices(amounts, k=500)
    ]
    Path(path).write_text("\n".join(["time,shop,amount", *lines]) + "\n")


def clean(path):
    """Extract and transform: read one file, drop bad rows, write Parquet; return what it did."""
    raw = pd.read_csv(path, parse_dates=["time"], keep_default_na=False)
    raw["amount"] = pd.to_numeric(raw["amount"], errors="coerce")
    good = raw.dropna(subset=["amount"])
    target = Path(path).with_suffix(".parquet")
    # Under another name first: a task that is run again never leaves half a file.
    good.to_parquet(target.with_suffix(".part"), index=False)
    target.with_suffix(".part").replace(target)
    return {"file": str(target), "rows": len(good), "dropped": len(raw) - len(good)}


def totals(part):
    return pd.read_parquet(part["file"]).groupby("shop")["amount"].agg(["sum", "count"])


def add(left, right):
    return left.add(right, fill_value=0)


folder = Path.cwd()
files = [str(folder / f"day-{i:02}.csv") for i in range(8)]
for i, file in enumerate(files):
    export(file, i)

with weft.Client(n_workers=2, threads_per_worker=1) as client:
    parts = client.map(clean, files, retries=2)
    sums = client.map(totals, parts)
    while len(sums) > 1:  # a tree of additions: no worker ever has more than two tables
        left, right = sums[::2], sums[1::2]
        sums = client.map(add, left, right)
    report = client.gather(parts)
    table = sums[0].result()

print(f"{len(report)} files, {sum(part['rows'] for part in report)} rows,", end=" ")
print(sum(part["dropped"] for part in report), "dropped")
table["mean"] = table["sum"] / table["count"]
print(table.round(2).to_string())
