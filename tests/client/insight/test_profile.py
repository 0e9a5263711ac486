"""`client.profile`: tasks on real workers are sampled, and the result is shown and saved."""

from __future__ import annotations

import json
import os
import threading

import pytest

import weft
from weft.client.display.profile import Profile
from weft.client.insight.profiling import StackReading, read_stacks
from weft.deploy.local.cluster import LocalCluster
from weft.protocol.errors import InvalidDuration, UnknownWorker
from weft.protocol.stack_tree import StackFrame, StackTree

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]


@pytest.fixture(scope="module")
def client():
    with weft.Client(processes=False, n_workers=2, threads_per_worker=1, name="me") as client:
        yield client


class Gate:
    """Where tasks wait for as long as a test wants; shared with them in this process."""

    started = threading.Semaphore(0)
    opened = threading.Event()


def wait_here():
    Gate.started.release()
    Gate.opened.wait(60)


def work(i):
    wait_here()


def play(i):
    wait_here()


@pytest.fixture
def running(client):
    """A task of `work` and one of `play`, on a worker each."""
    Gate.opened.clear()
    futures = [client.submit(function, 1, pure=False) for function in (work, play)]
    for _ in futures:
        assert Gate.started.acquire(timeout=30)
    yield futures
    Gate.opened.set()
    client.gather(futures)


def names_of(tree):
    return {tuple(frame.name for frame in stack[:3]) for stack, _ in tree.stacks()}


def test_a_profile_has_the_calls_of_the_tasks_that_run(client, running, wait_until):
    reader = StackReading()

    def names():
        read_stacks(client, reader)
        return names_of(reader.result().tree)

    wanted = {(name, name, "wait_here") for name in ("work", "play")}
    wait_until(lambda: names() >= wanted)
    found = reader.result()
    assert found.n_samples == sum(found.tree.functions().values())
    assert f"{found.n_samples} samples of 2 workers, in" in str(found)
    assert "wait_here (test_profile.py:" in str(found)
    assert names_of(reader.result("play").tree) == {("play", "play", "wait_here")}


def test_a_profile_of_one_worker_has_its_tasks_alone(client, running, wait_until):
    on = {name for name, keys in client.processing().items() if any("work" in key for key in keys)}
    reader = StackReading(*on)

    def names():
        read_stacks(client, reader)
        return names_of(reader.result().tree)

    wait_until(names)
    assert names() == {("work", "work", "wait_here")}


def test_a_call_samples_for_as_long_as_it_is_to(client, running):
    found = client.profile("work", seconds="80ms")
    assert found.seconds >= 0.08
    assert set(found.tree.functions()) <= {"work"}


def test_nothing_runs_that_could_be_sampled(client):
    found = client.profile(seconds=0.05)
    assert "no task was seen to run" in str(found)
    assert repr(found).startswith("<Profile: 0 samples of 2 workers, in ")
    assert found.top() == []
    assert found.to_speedscope()["profiles"][0]["samples"] == []


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"seconds": 0}, ValueError),
        ({"seconds": "soon"}, InvalidDuration),
        ({"function": print}, TypeError),
        ({"workers": "nowhere"}, UnknownWorker),
    ],
)
def test_arguments_that_mean_nothing_are_refused(client, arguments, error):
    with pytest.raises(error):
        client.profile(**arguments)


def compute_until(path):
    while not os.path.exists(path):
        sum(range(100))


def test_isolated_calls_are_sampled_in_their_processes(tmp_path, wait_until):
    path = str(tmp_path / "end")
    with (
        LocalCluster(n_workers=1, threads_per_worker=2, isolate=True) as cluster,
        weft.Client(cluster) as client,
    ):
        futures = [client.submit(compute_until, path, pure=False) for _ in range(2)]
        reader = StackReading()

        def names():
            read_stacks(client, reader)
            return {stack[:2] for stack in names_of(reader.result().tree)}

        wait_until(lambda: ("compute_until", "compute_until") in names())
        n_before = reader.result().n_samples
        wait_until(lambda: names() and reader.result().n_samples >= n_before + 10)
        (tmp_path / "end").touch()
        client.gather(futures)


class Waiter:
    def wait(self):
        wait_here()


def test_methods_of_actors_are_sampled(client, wait_until):
    Gate.opened.clear()
    actor = client.submit(Waiter, actor=True).result()
    call = actor.wait()
    assert Gate.started.acquire(timeout=30)
    reader = StackReading()

    def names():
        read_stacks(client, reader)
        return {stack[1:] for stack in names_of(reader.result().tree)}

    wait_until(lambda: ("Waiter.wait", "wait_here") in names())
    Gate.opened.set()
    call.result()


# --- Shown and saved ------------------------------------------------------------------------------


@pytest.fixture
def profile():
    tree = StackTree()
    tree.add(
        [
            StackFrame("f"),
            StackFrame("f", "/home/m.py", 3),
            StackFrame("</script><b>", "/home/m.py", 9),
        ],
        3,
    )
    tree.add([StackFrame("f"), StackFrame("f", "/home/m.py", 3)])
    tree.add([StackFrame("g")])
    return Profile(tree, seconds=2.0, interval_s=0.01, of=["2 workers"], notes=["a lack"])


def test_the_text_has_shares_places_and_notes(profile):
    assert str(profile).splitlines() == [
        "5 samples of 2 workers, in 2 s",
        "",
        "  itself  with calls  function",
        "  60.0%      60.0%   </script><b> (m.py:9)",
        "  20.0%      80.0%   f (m.py:3)",
        "",
        "          tasks of",
        "  80.0%   f",
        "  20.0%   g",
        "note: a lack",
    ]


def test_the_page_has_its_data_script_and_style_in_it(profile, tmp_path):
    profile.save(tmp_path / "profile.html")
    page = (tmp_path / "profile.html").read_text()
    assert "function flameGraph" in page
    assert "a lack" in page
    assert not {"src=", "http:", "https:"} & {*page.replace('"', " ").split()}
    text = page.partition('class="flame-data">')[2].partition("</script>")[0]
    found = StackTree.from_plain(json.loads(text))
    assert [*found.stacks()] == [*profile.tree.stacks()]
    assert "sandbox" in profile._repr_html_()


def test_a_file_for_speedscope_has_each_stack_with_its_time(profile, tmp_path):
    profile.save(tmp_path / "profile.json")
    found = json.loads((tmp_path / "profile.json").read_text())
    frames = found["shared"]["frames"]
    (shown,) = found["profiles"]
    stacks = [[frames[i]["name"] for i in stack] for stack in shown["samples"]]
    assert dict(zip(map(tuple, stacks), shown["weights"], strict=True)) == pytest.approx(
        {("f", "f"): 0.01, ("f", "f", "</script><b>"): 0.03, ("g",): 0.01}
    )
    assert shown["endValue"] == pytest.approx(0.05)
    assert {"name": "f", "file": "/home/m.py", "line": 3} in frames


def test_a_report_has_a_flame_graph_if_that_is_wished(client, running, tmp_path):
    with weft.performance_report(tmp_path / "with.html", profile=True, client=client):
        client.profile(seconds=0.05)
    with weft.performance_report(tmp_path / "without.html", client=client):
        pass
    page = (tmp_path / "with.html").read_text()
    text = page.partition('class="flame-data">')[2].partition("</script>")[0]
    StackTree.from_plain(json.loads(text))
    assert "function flameGraph" in page
    assert "flame" not in (tmp_path / "without.html").read_text()
