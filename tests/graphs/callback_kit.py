"""Callbacks for tests, as dask takes them: five functions."""

from __future__ import annotations

import threading


class Checker:
    """Looks at each call whether the tables are what they must be at that moment.

    Args:
        has_results: results come to the calling process, so that their table is complete.
        on_pretask: called with each key that begins.
        on_posttask: called with each key that has ended; None: no posttask is wanted.
    """

    def __init__(self, *, has_results=True, on_pretask=None, on_posttask=lambda key: None):
        self.begun = []
        self.ended = []
        self.results = {}
        self.worker_ids = set()
        self.is_errored = None
        self.state = None
        self._has_results = has_results
        self._on_pretask = on_pretask
        self._on_posttask = on_posttask
        self._thread = threading.current_thread()

    @property
    def callbacks(self):
        posttask = None if self._on_posttask is None else self.posttask
        return [(self.start, self.start_state, self.pretask, posttask, self.finish)]

    def start(self, dsk):
        self.dsk = dsk

    def start_state(self, dsk, state):
        assert dsk is self.dsk
        self.state = state
        self.literals = {*state["cache"]}
        self.needs = {key: {*keys} for key, keys in state["dependencies"].items()}
        self.n_tasks = len(self.needs) - len(self.literals)
        self.outputs = None
        self.check()

    def pretask(self, key, dsk, state):
        assert threading.current_thread() is self._thread
        assert dsk is self.dsk
        assert state is self.state
        self.begun.append(key)
        # Those that ended in between, if there was no posttask for them.
        self.ended += state["finished"] - {*self.ended}
        self.check()
        if self._on_pretask is not None:
            self._on_pretask(key)

    def posttask(self, key, result, dsk, state, worker_id):
        assert threading.current_thread() is self._thread
        self.ended.append(key)
        self.results[key] = result
        self.worker_ids.add(worker_id)
        assert state["finished"] == {*self.ended}
        assert state["cache"].get(key, result) is result
        self.check()
        self._on_posttask(key)

    def finish(self, dsk, state, is_errored):
        self.is_errored = is_errored

    def check(self):
        state = self.state
        assert len(self.begun) == len({*self.begun}), "each begins once"
        begun, ended = {*self.begun}, {*self.ended}
        assert state["running"] == begun - ended
        assert state["finished"] == ended
        left = {
            key: needs - ended - self.literals
            for key, needs in self.needs.items()
            if key not in begun and key not in self.literals
        }
        assert sorted(map(str, state["ready"])) == sorted(str(k) for k in left if not left[k])
        assert state["waiting"] == {key: needs for key, needs in left.items() if needs}
        users = {key: {k for k in state["dependents"][key] if k not in ended} for key in self.needs}
        assert state["waiting_data"] == {
            key: users[key] for key in self.needs if key not in state["released"]
        }
        assert all(not users[key] for key in state["released"])
        held = (ended | self.literals) - state["released"]
        assert {*state["cache"]} == held if self._has_results else {*state["cache"]} <= held
