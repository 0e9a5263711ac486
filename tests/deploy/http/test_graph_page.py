"""The page of a graph of tasks, and how their neighbours are read, without a browser."""

from __future__ import annotations

from weft.deploy.http import graph_reading
from weft.deploy.http.graph_layout import Neighbours, NeighbourTask
from weft.deploy.http.graph_page import GraphContent, graph_page
from weft.deploy.http.graph_reading import read_neighbours


class ScriptedScheduler:
    """Answers `tasks` about a chain with branches, and notes what it was asked."""

    def __init__(self, inputs):
        self.inputs = inputs
        self.asked = []

    async def ask_all(self, name, arguments):
        assert name == "tasks"
        self.asked += arguments["keys"]
        return {"tasks": [self.task(key) for key in arguments["keys"] if key in self.inputs]}

    def task(self, key):
        readers = [other for other, of in self.inputs.items() if key in of]
        return {
            "key": key,
            "function": "f",
            "state": "waiting",
            "inputs": self.inputs[key],
            "dependents": readers[:20],
            "n_inputs": len(self.inputs[key]),
            "n_dependents": len(readers),
        }


async def test_neighbours_are_read_from_near_to_far_and_each_once():
    chain = {str(i): [str(i - 1)] if i else [] for i in range(20)}
    scheduler = ScriptedScheduler(chain)
    found = await read_neighbours(scheduler, "10")
    assert [*found.tasks][:3] == ["10", "9", "11"]
    assert {*found.tasks} == {str(i) for i in range(4, 17)}
    assert len(scheduler.asked) == len({*scheduler.asked})


async def test_the_number_of_tasks_that_are_asked_about_is_bounded(monkeypatch):
    monkeypatch.setattr(graph_reading, "MAX_TASKS", 30)
    inputs = {f"a{i}": [] for i in range(25)} | {f"b{i}": [f"a{i}"] for i in range(25)}
    scheduler = ScriptedScheduler({**inputs, "all": [f"a{i}" for i in range(20)]})
    found = await read_neighbours(scheduler, "all")
    assert len(scheduler.asked) == len(found.tasks) == 30


async def test_an_unknown_key_has_no_neighbours():
    scheduler = ScriptedScheduler({})
    assert (await read_neighbours(scheduler, "x")).tasks == {}
    assert (await read_neighbours(scheduler, "")).tasks == {}
    assert scheduler.asked == ["x"]


def test_names_in_a_graph_are_text_and_no_element_has_a_style():
    name = "<b>&'\""
    found = Neighbours(
        {name: NeighbourTask(name, name, "erred"), "b": NeighbourTask("b", "b", "?")}
    )
    page = graph_page(GraphContent("weft", name, found))
    assert "<b>" not in page
    assert 'href="task?key=%3Cb%3E%26%27%22"' in page
    assert 'href="graph?key=b"' in page
    assert "style=" not in page
    assert 'class="erred chosen"' in page
