"""A client waits for a scheduler that is just starting, and its errors are short."""

from __future__ import annotations

import socket
import threading
import traceback

import pytest

from tests.client.test_outages import write_connection_file
from weft.client import Client
from weft.protocol.errors import ConfigError, ConnectTimeout


@pytest.fixture(autouse=True)
def no_other_scheduler(monkeypatch, tmp_path):
    for name in ("WEFT_CONNECTION_FILE", "WEFT_TOKEN_FILE", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.mark.parametrize("by", ["file", "address"])
def test_a_client_waits_for_a_scheduler_that_is_just_starting(
    by, scheduler, tmp_path, wait_until, caplog
):
    address = scheduler.scheduler_address
    path = tmp_path / ("cluster.json" if by == "file" else ".weft/run/scheduler.json")
    if by == "address":
        scheduler.disappear()
    found = {"file": {"connection_file": path}, "address": {"address": address}}[by]
    results = []

    def use():
        with Client(timeout=60, **found) as client:
            results.append(client.submit(abs, -1).result(60))

    thread = threading.Thread(target=use)
    thread.start()
    try:
        wait_until(lambda: "waiting for a scheduler for 60 s" in caplog.text)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if by == "address":
            path.parent.parent.chmod(0o700)
            scheduler.listen()
        write_connection_file(scheduler, path)
    finally:
        thread.join()
    assert results == [1]


@pytest.mark.parametrize(
    ("options", "words", "place"),
    [
        ({"address": "tcp://127.0.0.1:1"}, "no process listens at tcp://127.0.0.1:1", "looked in"),
        ({"connection_file": "nosuch.json"}, "there is no connection file nosuch.json", "path"),
    ],
)
def test_the_error_of_an_absent_scheduler_is_short_and_has_details_in_a_note(options, words, place):
    with pytest.raises(ConnectTimeout) as caught:
        Client(timeout=0.2, **options)
    text = str(caught.value)
    assert text.startswith(f"no scheduler was found within 0.2 s: {words}; start ")
    assert len(text) < 160
    (note,) = caught.value.__notes__
    assert place in note
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert [frame.name for frame in frames[1:]] == ["__init__"]


@pytest.mark.slow
def test_a_process_that_listens_and_whose_token_is_not_here_is_not_waited_for():
    with socket.create_server(("127.0.0.1", 0)) as there:
        address = f"tcp://127.0.0.1:{there.getsockname()[1]}"
        words = f"no token was found for {address}; pass the conn"
        with pytest.raises(ConfigError, match=words) as caught:
            Client(address, timeout=1e6)
    (note,) = caught.value.__notes__
    assert note.startswith("weft: looked in --connection-file (not given), ")
    assert "token was found" not in note
