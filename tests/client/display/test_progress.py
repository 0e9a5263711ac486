"""Progress of futures: what is counted, and how terminals and files show it."""

from __future__ import annotations

import asyncio
import io
import re
import threading

import pytest

import weft
from weft.client import Client
from weft.client.display import painting, progress, ticking

gate = threading.Event()


@pytest.fixture
def client():
    gate.clear()
    with Client(processes=False, n_workers=1, threads_per_worker=2) as client:
        yield client
        gate.set()


def waits(x):
    gate.wait(60)
    if x == 3:
        raise ValueError(x)
    return x


def row(name="f", done=0, failed=0, total=10, note=""):
    return {
        "name": name,
        "done": done,
        "failed": failed,
        "cancelled": 0,
        "total": total,
        "note": note,
    }


class Kept:
    """A painter that keeps what it is given."""

    def __init__(self):
        self.painted, self.finished = [], []

    def paint(self, seen):
        self.painted.append(seen)

    def finish(self, seen):
        self.finished.append(seen)


def test_futures_are_counted_by_function_with_those_that_failed(client, wait_until):
    slow, quick = client.map(waits, range(10)), client.map(abs, range(5), pure=False)
    kept = Kept()
    shown = progress.Progress(client._engine, kept)
    shown.add([future._state for future in [*slow, *quick]])
    gate.set()
    wait_until(lambda: not shown.draw())
    assert not shown.draw()  # it is over, and nothing more is painted
    (seen,) = kept.finished
    assert [(r["name"], r["done"], r["failed"], r["total"]) for r in seen["rows"]] == [
        ("waits", 10, 1, 10),
        ("abs", 5, 0, 5),
    ]
    assert re.match(r"14 of 15 tasks of waits, abs done in .*, 1 failed$", seen["summary"])


def test_functions_beyond_the_limit_share_a_row(client):
    futures = [client.submit(abs, i, key=f"name{i}-x", pure=False) for i in range(30)]
    client.gather(futures)  # then the records of their calls, which name the function, are gone
    kept = Kept()
    shown = progress.Progress(client._engine, kept)
    states = [future._state for future in futures]
    for i, state in enumerate(states):
        state.function = None
        assert progress.function_of(state) == f"name{i}"
    shown.add(states)
    shown.finish()
    rows = kept.finished[0]["rows"]
    assert len(rows) == 21
    assert (rows[-1]["name"], rows[-1]["total"]) == ("other functions", 10)


@pytest.mark.parametrize(
    ("key", "name"),
    [
        (("getitem-assign-" + "0f" * 16, 3), "getitem-assign"),
        ("sum-" + "0f" * 16, "sum"),
        (("by-hand", 0), "by-hand"),
        ("inc-0f0f0f-7", "inc"),
        ("by_hand", "by_hand"),
    ],
)
def test_without_its_record_a_call_is_named_by_its_key(client, key, name):
    future = client.submit(abs, 1, key=key, pure=False)
    client.gather([future])
    future._state.function = future._state.spec = None
    assert progress.function_of(future._state) == name


@pytest.mark.parametrize("blocking", [True, False])
def test_the_summary_comes_when_all_futures_are_done(client, capsys, wait_until, blocking):
    gate.set()
    futures = client.map(waits, range(10)), {"more": client.submit(abs, -1)}
    weft.progress(*futures, blocking=blocking)
    wait_until(lambda: not any(t.name == "weft-display" for t in threading.enumerate()))
    assert re.search(
        r"weft: 10 of 11 tasks of waits, abs done in .*, 1 failed\n$", capsys.readouterr().err
    )


def test_futures_that_are_released_meanwhile_are_cancelled_and_end_the_progress(
    client, capsys, wait_until
):
    weft.progress(client.map(waits, range(4)), blocking=False)
    wait_until(lambda: not any(t.name == "weft-display" for t in threading.enumerate()))
    assert re.search(r"0 of 4 tasks of waits done in .*, 4 cancelled\n$", capsys.readouterr().err)


def test_the_end_of_the_client_ends_a_progress_that_does_not_block(capsys, wait_until):
    gate.clear()
    with Client(processes=False, n_workers=1, threads_per_worker=2) as client:
        futures = client.map(waits, range(10))
        weft.progress(futures, blocking=False)
        client.close()
        gate.set()
    wait_until(lambda: not any(t.name == "weft-display" for t in threading.enumerate()))
    assert "of waits done" in capsys.readouterr().err


def test_gathering_with_progress_gives_the_results_the_first_error_or_a_timeout(client, capsys):
    with pytest.raises(TimeoutError, match=r"10 of 10 results did not arrive within 0.01 s"):
        client.gather(client.map(waits, range(10)), progress=True, timeout=0.01)
    assert "weft: 0 of 10 tasks of waits done" in capsys.readouterr().err
    gate.set()
    assert client.gather(client.map(waits, range(3)), progress=True) == [0, 1, 2]
    with pytest.raises(ValueError, match=r"^3"):
        client.gather(client.map(waits, range(10)), progress=True)
    assert client.gather(client.map(waits, range(5)), "skip", progress=True) == [0, 1, 2, 4]


def test_an_iteration_with_progress_counts_futures_that_are_added(client, capsys):
    gate.set()
    completed = weft.as_completed(client.map(waits, range(5)), progress=True)
    for i, _ in enumerate(completed):
        if i == 0:
            completed.update(client.map(abs, range(7)))
    assert re.search(
        r"11 of 12 tasks of waits, abs done in .*, 1 failed\n$", capsys.readouterr().err
    )


def test_an_iteration_ends_with_all_counted_though_the_loop_is_late(client, capsys):
    gate.set()
    futures = [*client.map(waits, range(5)), *client.map(abs, range(7))]
    weft.wait(futures)
    late = threading.Event()
    client.loop.call_soon_threadsafe(late.wait, 60)
    completed = weft.as_completed(futures, progress=True)
    for _ in futures:
        next(completed)  # they are here, without the loop
    threading.Timer(0.1, late.set).start()
    assert list(completed) == []
    assert re.search(
        r"11 of 12 tasks of abs, waits done in .*, 1 failed\n$", capsys.readouterr().err
    )


def test_an_iteration_that_was_given_up_does_not_go_on_drawing(client, wait_until):
    completed = weft.as_completed(client.map(waits, range(5)), progress=True)
    del completed
    gate.set()
    wait_until(lambda: not any(t.name == "weft-display" for t in threading.enumerate()))


async def test_an_asynchronous_client_awaits_progress(capsys):
    gate.set()
    async with Client(asynchronous=True, processes=False, n_workers=1) as client:
        futures = client.map(waits, range(5))
        await weft.progress(futures)
        assert "5 tasks of waits done" in capsys.readouterr().err
        assert await client.gather(futures[:2], progress=True) == [0, 1]
        with pytest.raises(ValueError, match=r"^3"):
            await client.gather(client.map(waits, range(20)), progress=True)
        await asyncio.sleep(0)


def test_objects_that_are_no_futures_are_refused(client):
    assert weft.progress([]) is None
    with pytest.raises(TypeError, match="progress"):
        weft.progress(7)
    with pytest.raises(TypeError, match="progress"):
        weft.progress(["text"])
    future = client.submit(abs, 1)
    future.release()
    with pytest.raises(ValueError, match="was released"):
        weft.progress(future)


# --- Painting -------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_no_line_is_wider_than_the_terminal(width):
    rows = [row("a" * 60, 10**6, 10**5, 10**7, "1,000,000/s, 3:04:05 left"), row(done=10)]
    for line in painting.lines_of(rows, width):
        assert len(line) <= width
    full = painting.lines_of([row("sum", 5, 0, 10, "3/s")], 100)
    assert full == ["sum                      [##########----------] 5/10  3/s"]


@pytest.mark.parametrize(
    ("done", "failed", "bar"),
    [
        (10, 0, "####################"),
        (10, 10, "xxxxxxxxxxxxxxxxxxxx"),
        (10, 1, "##################xx"),
        (5, 5, "xxxxxxxxxx----------"),
        (0, 0, "--------------------"),
    ],
)
def test_failures_have_a_part_of_the_bar(done, failed, bar):
    (line,) = painting.lines_of([row("sum", done, failed, 10)], 100)
    assert f"[{bar}]" in line
    (coloured,) = painting.lines_of([row("sum", done, failed, 10)], 100, colour=True)
    assert re.sub(r"\x1b\[\d+m", "", coloured) == line
    assert coloured.count("\x1b[31m") == (2 if failed else 0)


@pytest.mark.parametrize(
    ("done", "failed", "bar"),
    [(1000, 1, "###################x"), (1000, 999, "#xxxxxxxxxxxxxxxxxxx"), (40, 1, "-" * 20)],
)
def test_few_failures_and_few_results_are_visible_in_the_bar(done, failed, bar):
    (line,) = painting.lines_of([row("sum", done, failed, 1000)], 100)
    assert f"[{bar}]" in line


def test_a_terminal_shows_the_summary_in_place_of_the_lines(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("TERM", raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = Terminal()
    painter = painting.make_painter(stream=stream)
    painter.paint({"rows": [row("one"), row("two", 3, 1)], "summary": ""})
    painter.paint({"rows": [row("one"), row("two", 4, 1)], "summary": ""})
    with painting.undisturbed():
        stream.write("a line of a task\n")
    painter.paint({"rows": [row("one"), row("two", 5, 1)], "summary": ""})
    painter.finish({"rows": [], "summary": "20 tasks done"})
    assert screen(stream.getvalue()) == ["a line of a task", "20 tasks done", ""]
    assert "\x1b[31m" in stream.getvalue()


def screen(text):
    """Return the lines that a terminal shows after this output."""
    lines, at = [""], 0
    for part in re.split(r"(\r|\n|\x1b\[\d*[AJm])", text):
        if part == "\n":
            at += 1
            lines[at:at] = [""] if at == len(lines) else []
        elif part == "\x1b[J":
            del lines[at + 1 :]
            lines[at] = ""
        elif part.endswith("A"):
            at -= int(part[2:-1])
        elif part and part != "\r" and not part.startswith("\x1b"):
            lines[at] += part
    return lines


def test_no_colour_is_used_where_that_is_asked_for(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("TERM", raising=False)
    stream = Terminal()
    painting.make_painter(stream=stream).paint({"rows": [row(done=1, failed=1)], "summary": ""})
    assert "1 failed" in stream.getvalue()
    assert "\x1b[31m" not in stream.getvalue()
    with painting.undisturbed():
        pass


@pytest.mark.parametrize("terminal", ["dumb", None])
def test_a_file_gets_a_line_now_and_then_and_the_summary(monkeypatch, terminal):
    if terminal:
        monkeypatch.setenv("TERM", terminal)
    stream = Terminal() if terminal else io.StringIO()
    painter = painting.make_painter(stream=stream)
    for seconds in range(80):
        painter.paint({"rows": [row("f", seconds // 10, 0, 10, "1/s")], "seconds": seconds})
    painter.finish({"rows": [], "summary": "done", "seconds": 80})
    assert stream.getvalue() == "weft: f 1/10, 1/s\nweft: f 7/10, 1/s\nweft: done\n"


def test_a_terminal_of_few_lines_shows_as_many_functions_as_fit(monkeypatch):
    monkeypatch.setenv("LINES", "6")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("TERM", raising=False)
    stream = Terminal()
    painter = painting.make_painter(stream=stream)
    painter.paint({"rows": [row(f"f{i}") for i in range(9)], "summary": ""})
    assert screen(stream.getvalue())[-1] == "and 6 more functions"
    assert len(screen(stream.getvalue())) == 4
    painter.finish({"rows": [], "summary": "done"})


def test_a_stream_that_fails_ends_the_drawing_and_nothing_else(client, wait_until):
    class Broken(Kept):
        def paint(self, seen):
            raise RuntimeError("no front end")

        finish = paint

    shown = progress.Progress(client._engine, Broken())
    shown.add([client.submit(waits, 1)._state])
    ticking.begin(shown)
    wait_until(lambda: not any(t.name == "weft-display" for t in threading.enumerate()))
