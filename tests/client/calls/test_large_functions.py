"""Functions with much data in them: every call gets the data of its time, sent once."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from weft.client.calls import encoding
from weft.client.calls.encoding import Encoder


class Model:
    def __init__(self, weights):
        self.weights = weights

    def total(self, tag):
        return float(self.weights.sum())


def submitted(client, func, i):
    return client.submit(func, i).result(60)


def mapped(client, func, i):
    return client.gather(client.map(func, [i]), timeout=60)[0]


@pytest.mark.parametrize("call", [submitted, mapped])
def test_data_changed_in_place_reaches_the_next_call(client, call):
    array = np.zeros(100_000)
    rows = [0] * 50_000
    table = dict.fromkeys(range(20000), 0)
    model = Model(np.zeros(100_000))
    functions = [
        lambda tag: float(array.sum()),
        lambda tag: sum(rows),
        lambda tag: sum(table.values()),
        model.total,
    ]
    assert [call(client, func, 1) for func in functions] == [0, 0, 0, 0]
    array[7] = rows[7] = table[7] = model.weights[7] = 7
    assert [call(client, func, 2) for func in functions] == [7, 7, 7, 7]


def test_data_frame_changed_in_place_reaches_the_next_call(client):
    pandas = pytest.importorskip("pandas", reason="pandas is missing: pip install pandas")
    frame = pandas.DataFrame({"a": np.zeros(100_000)})

    def mean(tag):
        return float(frame["a"].mean())

    assert submitted(client, mean, 1) == 0
    frame["a"] = 7.0
    assert submitted(client, mean, 2) == 7


def test_a_large_object_whose_method_is_submitted_again_is_warned_of_once(client, caplog):
    model = Model(np.ones(1_200_000))
    for i in range(3):
        assert submitted(client, model.total, i) == 1_200_000
    (record,) = [r for r in caplog.records if r.name == "weft.client"]
    assert "the function Model.total is pickled again for each submit" in record.message
    assert "with 9.16 MiB in its object (self), of type Model" in record.message
    assert "let a task return the object and pass its future" in record.message


def test_equal_content_has_one_record():
    encoder = Encoder("part")
    model = Model(np.ones(1_200_000))
    record = encoder.function(model.total)
    assert encoder.function(model.total) is record
    assert encoder.function(Model(np.ones(1_200_000)).total) is record


def test_records_of_large_functions_are_let_go_unless_tasks_use_them(monkeypatch):
    monkeypatch.setattr(encoding, "_MAX_FUNCTIONS_NBYTES", 4_000_000)
    encoder = Encoder("part")
    models = [Model(np.full(200_000, float(i))) for i in range(6)]
    used = encoder.function(models[0].total)
    unused = weakref.ref(encoder.function(models[1].total))
    for model in models[2:]:
        encoder.function(model.total)
    gc.collect()
    assert unused() is None
    assert encoder.function(models[0].total) is used
