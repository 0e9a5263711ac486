"""Graphs for tests, and the obvious way to run them."""

from __future__ import annotations

import gc
import sys
import threading
from concurrent.futures import Executor, Future

from hypothesis import strategies as st


def inc(x):
    return x + 1


def total(*parts):
    """Add up numbers, and those in containers."""
    result = 1
    for part in parts:
        if isinstance(part, (list, tuple, set, frozenset)):
            result += total(*part)
        else:
            result += part
    return result % 1_000_003


def evaluate(dsk, key):
    """Return the value of a key, by recursion and the rules of the legacy dialect."""

    def value_of(obj):
        if type(obj) is tuple and obj and callable(obj[0]):
            return obj[0](*[value_of(arg) for arg in obj[1:]])
        if isinstance(obj, (str, int, float, tuple)):
            try:
                if obj in dsk:
                    return known(obj)
            except TypeError:
                pass  # a tuple with a list in it is no key
        if isinstance(obj, (list, tuple, set, frozenset)):
            return type(obj)([value_of(item) for item in obj])
        return obj

    values = {}

    def known(key):
        if key not in values:
            values[key] = value_of(dsk[key])
        return values[key]

    return known(key)


@st.composite
def graphs(draw, max_tasks=25):
    """Draw a graph whose values are numbers, in all forms of the legacy dialect, and its keys."""
    n = draw(st.integers(1, max_tasks))
    keys = [f"k{i}" if i % 2 else ("k", i) for i in range(n)]
    dsk = {}
    for i, key in enumerate(keys):
        below = st.sampled_from(keys[:i]) if i else st.just(7)
        atom = st.one_of(below, st.integers(1_000, 2_000))
        part = st.one_of(
            atom,
            st.lists(atom, max_size=3),
            st.tuples(st.just(total), atom),
            st.lists(st.tuples(st.just(total), atom), max_size=2),
            st.lists(atom, max_size=2).map(tuple),
        )
        args = st.lists(part, max_size=4).map(lambda parts: (total, *parts))
        dsk[key] = draw(st.one_of(args, args, args, st.integers(1_000, 2_000), below))
    wanted = draw(st.lists(st.sampled_from(keys), min_size=1, max_size=4))
    return dsk, wanted


def chains(width, height, first, step):
    """Return embarrassingly parallel chains and the keys of their ends."""
    dsk = {("c", 0, i): (first, i) for i in range(width)}
    for j in range(1, height):
        dsk.update({("c", j, i): (step, ("c", j - 1, i)) for i in range(width)})
    return dsk, [("c", height - 1, i) for i in range(width)]


def crosstalk(width, height, first, step):
    """Return layers in which each task needs three neighbours of the layer below, and the last."""
    dsk = {("c", 0, i): (first, i) for i in range(width)}
    for j in range(1, height):
        for i in range(width):
            below = [("c", j - 1, (i + d) % width) for d in range(3)]
            dsk["c", j, i] = (step, below)
    return dsk, [("c", height - 1, i) for i in range(width)]


def has_interpreter_lock():
    return getattr(sys, "_is_gil_enabled", lambda: True)()


def are_gone(*refs):
    """Return whether the referents of all these weak references are gone.

    Without an interpreter lock, an object that another thread made is destroyed when its
    maker runs next. For makers that sleep, a collection does it.
    """
    if not has_interpreter_lock():
        gc.collect()
    return all(ref() is None for ref in refs)


class Peak:
    """Counts results that are alive."""

    def __init__(self):
        # Without an interpreter lock a destructor runs in the thread that made the object, between
        # any two steps of it: so also in the midst of `change`.
        self._lock = threading.RLock()
        self._n_alive = 0
        self.peak = 0

    def result(self, *_):
        """Return a new result, as a task."""
        return _Counted(self)

    def change(self, by):
        with self._lock:
            self._n_alive += by
            self.peak = max(self.peak, self._n_alive)


class _Counted:
    def __init__(self, counter):
        self._counter = counter
        counter.change(1)

    def __del__(self):
        self._counter.change(-1)


class Taciturn(Executor):
    """An executor that never marks a future as running. Errors of its threads are kept."""

    def __init__(self):
        self.errors = []
        self._started = []

    def submit(self, fn, /, *args, **kwargs):
        future = Future()

        def run():
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as exc:
                self.errors.append(exc)

        thread = threading.Thread(target=run)
        self._started.append(thread)
        thread.start()
        return future

    def shutdown(self, wait=True, *, cancel_futures=False):
        for thread in self._started:
            thread.join()


class ThirdParty(Executor):
    """An executor of an unknown class: a thread for each call."""

    def __init__(self):
        self._started = []

    def submit(self, fn, /, *args, **kwargs):
        future = Future()

        def run():
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(fn(*args, **kwargs))
                except BaseException as exc:
                    future.set_exception(exc)

        thread = threading.Thread(target=run)
        self._started.append(thread)
        thread.start()
        return future

    def shutdown(self, wait=True, *, cancel_futures=False):
        for thread in self._started:
            thread.join()
