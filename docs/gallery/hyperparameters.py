"""Hyper-parameter search by asynchronous successive halving (ASHA), early stopping included.

Each candidate trains for a few steps. When it ends among the best third of its rung it goes on, for
three times as many; the others are given up. No rung waits for its last candidate.
"""

import random

import weft

RUNGS = [3, 9, 27, 81]  # steps of training after which candidates are compared


def start(rate, momentum):
    """A model to train: its parameters, and what an optimizer keeps."""
    return {"rate": rate, "momentum": momentum, "w": [4.0, -3.0], "v": [0.0, 0.0], "steps": 0}


def train(model, n_steps):
    """Train up to this number of steps; return a new model and its loss. Runs on a worker."""
    w, v = list(model["w"]), list(model["v"])  # inputs are not changed
    for _ in range(n_steps - model["steps"]):
        gradient = [w[0], 20 * w[1]]
        v = [model["momentum"] * a - model["rate"] * g for a, g in zip(v, gradient, strict=True)]
        w = [a + b for a, b in zip(w, v, strict=True)]
    loss = w[0] ** 2 / 2 + 10 * w[1] ** 2
    return {**model, "w": w, "v": v, "steps": n_steps}, loss


def loss_of(trained):
    return trained[1]


def model_of(trained):
    return trained[0]


rng = random.Random(7)
candidates = [(10 ** rng.uniform(-4, -0.8), rng.uniform(0, 0.99)) for _ in range(40)]

with weft.Client(n_workers=2, threads_per_worker=1) as client:
    losses = weft.as_completed()
    running = {}  # {future of a loss: (candidate, rung, future of its model)}

    def train_on(candidate, rung, model):
        trained = client.submit(train, model, RUNGS[rung], priority=rung)  # promoted ones first
        loss = client.submit(loss_of, trained, priority=rung)
        # The model stays on its worker; only losses come here.
        running[loss] = candidate, rung, client.submit(model_of, trained, priority=rung)
        losses.add(loss)

    for candidate in candidates:
        train_on(candidate, 0, start(*candidate))

    ended = [[] for _ in RUNGS]  # per rung: (loss, candidate), the best first
    promoted = [set() for _ in RUNGS]
    models = [{} for _ in RUNGS]
    for future in losses:
        candidate, rung, model = running.pop(future)
        ended[rung] = sorted([*ended[rung], (future.result(), candidate)])
        models[rung][candidate] = model
        for _, best in ended[rung][: len(ended[rung]) // 3]:
            if rung + 1 < len(RUNGS) and best not in promoted[rung]:
                promoted[rung].add(best)
                train_on(best, rung + 1, models[rung].pop(best))

print("steps  candidates  best loss")
for n_steps, rung in zip(RUNGS, ended, strict=True):
    print(f"{n_steps:5}  {len(rung):10}  {rung[0][0]:9.6f}")
loss, (rate, momentum) = ended[-1][0]
print(f"best: rate {rate:.4f}, momentum {momentum:.2f}")
