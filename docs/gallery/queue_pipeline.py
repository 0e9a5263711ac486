"""Pipeline: reader, parsers and a writer run at the same time, joined by queues of bounded size."""

import collections

import weft

END = None


def read(lines):
    """Stage 1: put lines into a queue. It waits while eight lines are there already."""
    text = "the scheduler sends tasks to the workers and the workers send results to the client"
    words = text.split()
    for i in range(60):
        lines.put(" ".join(words[i % 15 :] + words[: i % 15]))
    return 60


def parse(lines, counts):
    """Stage 2, several at a time: count the words of a line."""
    n_lines = 0
    while (line := lines.get()) is not END:
        counts.put(collections.Counter(line.split()))
        n_lines += 1
    lines.put(END)  # for the next parser
    return n_lines


def write(counts):
    """Stage 3: add the counts up."""
    total = collections.Counter()
    while (count := counts.get()) is not END:
        total += count
    return total


with weft.Client(n_workers=2, threads_per_worker=1) as client:
    lines, counts = weft.Queue(maxsize=8), weft.Queue(maxsize=8)
    # Five tasks on two threads: one that waits for a queue gives its thread to another.
    reader = client.submit(read, lines, pure=False)
    parsers = [client.submit(parse, lines, counts, pure=False) for _ in range(3)]
    writer = client.submit(write, counts, pure=False)

    print("read:", reader.result())
    lines.put(END)
    print("parsed:", sum(client.gather(parsers)))
    counts.put(END)
    for word, n in sorted(writer.result().items(), key=lambda item: (-item[1], item[0]))[:3]:
        print(f"{word}: {n}")
    lines.close()
    counts.close()
