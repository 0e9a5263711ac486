"""Parameter server: an actor keeps the weights of a model that several tasks train together."""

import numpy as np

import weft

TRUE_WEIGHTS = np.array([2.0, -1.0, 0.5])


class ParameterServer:
    """The weights, on one worker. Its methods run one at a time, so they need no lock."""

    def __init__(self, n_weights, rate):
        self.weights = np.zeros(n_weights)
        self.rate = rate
        self.n_updates = 0

    def pull(self):
        return self.weights.copy()

    def push(self, gradient):
        self.weights -= self.rate * gradient
        self.n_updates += 1
        return self.weights.copy()


def make_shard(seed):
    """One worker's part of the data: a linear model and some noise."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(500, 3))
    return x, x @ TRUE_WEIGHTS + rng.normal(scale=0.1, size=500)


def train(server, shard, n_steps):
    """Pull the weights, compute a gradient on the shard, push it; without waiting for others."""
    x, y = shard
    weights = server.pull().result()
    for _ in range(n_steps):
        gradient = x.T @ (x @ weights - y) / len(y)
        weights = server.push(gradient).result()  # from this worker to that of the actor
    return float(np.mean((x @ weights - y) ** 2))


with weft.Client(n_workers=2, threads_per_worker=2) as client:
    server = client.submit(ParameterServer, 3, rate=0.05, actor=True).result()
    shards = client.map(make_shard, range(4))
    runs = client.map(train, [server] * 4, shards, n_steps=60)
    errors = client.gather(runs)
    print("updates:", server.n_updates)
    print("weights:", server.weights.round(1).tolist())
    print("each shard's error below 0.02:", max(errors) < 0.02)
