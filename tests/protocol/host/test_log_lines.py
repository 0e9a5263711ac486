"""The lines of a log: as text, and as JSON."""

from __future__ import annotations

import json
import logging
import re
import sys

from weft.protocol.host.log_lines import FORMATTERS, log_to_stderr


def record(text, *args, exc_info=None):
    return logging.LogRecord("weft.worker", logging.WARNING, "", 1, text, args, exc_info)


def test_a_record_is_one_object_in_one_line():
    line = FORMATTERS["json"].format(record("%s is back:\n\u201cé\u201d %d", "w0", 3))
    assert "\n" not in line
    fields = json.loads(line)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", fields.pop("time"))
    assert isinstance(fields.pop("process"), int)
    assert fields == {
        "level": "warning",
        "logger": "weft.worker",
        "thread": "MainThread",
        "message": "w0 is back:\n\u201cé\u201d 3",
    }


def test_the_code_of_a_warning_is_a_field():
    warned = record("worker %s ended", "w0")
    warned.code = "worker-lost"
    assert json.loads(FORMATTERS["json"].format(warned))["code"] == "worker-lost"
    assert FORMATTERS["text"].format(warned).endswith("worker w0 ended")


def test_a_traceback_is_a_field_of_its_own():
    try:
        raise ValueError("no number")
    except ValueError:
        line = FORMATTERS["json"].format(record("it failed", exc_info=sys.exc_info()))
    fields = json.loads(line)
    assert fields["message"] == "it failed"
    assert fields["exception"].endswith("ValueError: no number")


def test_a_log_that_a_program_has_set_up_stays(monkeypatch):
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    log_to_stderr("INFO", "json")
    (handler,) = root.handlers
    log_to_stderr("DEBUG")
    assert root.handlers == [handler]
    assert handler.formatter is FORMATTERS["json"]
    assert root.level == logging.INFO
