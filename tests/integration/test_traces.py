"""Traces of OpenTelemetry go on in tasks, in this process and in others."""

from __future__ import annotations

import json
import sys

import pytest

import weft
from weft.protocol.values import tracing

MISSING = "OpenTelemetry is missing: pip install 'weft[test]'"
pytest.importorskip("opentelemetry.sdk", reason=MISSING)

from opentelemetry import trace  # noqa: E402 - what follows needs it
from opentelemetry.sdk.trace import TracerProvider  # noqa: E402
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor  # noqa: E402
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # noqa: E402

import weft.compat.opentelemetry  # noqa: E402
from weft.client.calls.annotations import options_of_call  # noqa: E402
from weft.protocol.wire.options import TaskOptions  # noqa: E402

TRACER = trace.get_tracer("tests")


class ToFile(weft.WorkerPlugin):
    """Has the spans of a worker written into a file, each as one line."""

    def __init__(self, path):
        self.path = str(path)

    def setup(self, worker):
        self.file = open(self.path, "a", encoding="utf-8")  # noqa: SIM115 - for its tasks
        exporter = ConsoleSpanExporter(out=self.file, formatter=lambda s: s.to_json(None) + "\n")
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(exporter))
        trace.set_tracer_provider(self.provider)

    def teardown(self, worker):
        self.provider.shutdown()
        self.file.close()


@pytest.fixture(scope="module")
def exporter():
    """What takes the spans of this process, whose provider can be set only once."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


@pytest.fixture
def spans(exporter):
    exporter.clear()
    weft.compat.opentelemetry.install()
    yield lambda: {span.name: span for span in exporter.get_finished_spans()}
    weft.compat.opentelemetry.uninstall()


@pytest.fixture
def client():
    with weft.Client(processes=False, n_workers=1, set_as_default=False) as client:
        yield client


def work(x):
    with trace.get_tracer("tests").start_as_current_span("inner"):
        return x + 1


async def work_async(x):
    with trace.get_tracer("tests").start_as_current_span("inner"):
        return x + 1


def fail():
    raise ValueError("no number")


def submit_more(x):
    return weft.get_client().submit(work, x).result()


@pytest.mark.parametrize("function", [work, work_async])
def test_a_span_of_a_task_is_between_those_of_its_caller_and_its_code(client, spans, function):
    with TRACER.start_as_current_span("outer"):
        future = client.submit(function, 1)
        assert future.result() == 2
    found = spans()
    task = found[function.__name__]
    assert task.parent.span_id == found["outer"].context.span_id
    assert found["inner"].parent.span_id == task.context.span_id
    assert len({span.context.trace_id for span in found.values()}) == 1
    (worker,) = client.scheduler_info()["workers"].values()
    assert dict(task.attributes) == {
        "weft.key": future.key,
        "weft.function": function.__name__,
        "weft.worker": worker["name"],
        "weft.attempt": task.attributes["weft.attempt"],
    }


def test_a_task_that_raises_has_its_error_in_its_span(client, spans):
    with TRACER.start_as_current_span("outer"), pytest.raises(ValueError, match="no number"):
        client.submit(fail).result()
    span = spans()["fail"]
    assert not span.status.is_ok
    assert "no number" in span.status.description
    assert span.events[0].attributes["exception.type"] == "ValueError"


def test_a_map_takes_its_context_along(client, exporter, spans):
    with TRACER.start_as_current_span("outer"):
        futures = client.map(work, range(20))
    client.gather(futures)
    outer = spans()["outer"].context
    parents = [s.parent.span_id for s in exporter.get_finished_spans() if s.name == "work"]
    assert parents == 20 * [outer.span_id]


def test_calls_that_a_task_submits_are_within_its_span(client, spans):
    with TRACER.start_as_current_span("outer"):
        assert client.submit(submit_more, 1).result() == 2
    found = spans()
    assert found["work"].parent.span_id == found["submit_more"].context.span_id


def test_the_tags_of_a_span_of_weft_stay(spans):
    with TRACER.start_as_current_span("outer"), weft.span("tag"):
        options = options_of_call()
    assert isinstance(options, TaskOptions)
    assert list(options.span) == ["tag"]
    assert options.trace_context[0] == "traceparent"


def test_calls_outside_of_spans_are_not_traced(client, spans):
    assert client.submit(work, 1).result() == 2
    assert set(spans()) == {"inner"}


def test_nothing_is_traced_before_it_is_installed(client, exporter):
    exporter.clear()
    assert tracing.inject is None
    with TRACER.start_as_current_span("outer"):
        client.submit(work, 1).result()
    assert {span.name for span in exporter.get_finished_spans()} == {"outer", "inner"}


@pytest.mark.parametrize("isolate", [False, True])
def test_a_worker_process_continues_the_trace(tmp_path, spans, isolate):
    file = tmp_path / "spans"
    with weft.Client(
        n_workers=1, threads_per_worker=1, isolate=isolate, set_as_default=False
    ) as client:
        if isolate:
            client.submit(ToFile(file).setup, None).result()  # children have no plugins
        else:
            client.register_plugin(ToFile(file))
        with TRACER.start_as_current_span("outer") as outer:
            client.submit(work, 1).result()
        context = outer.get_span_context()
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    found = {span["name"]: span for span in lines}
    assert found["work"]["context"]["trace_id"] == f"0x{context.trace_id:032x}"
    assert found["work"]["parent_id"] == f"0x{context.span_id:016x}"
    assert found["inner"]["parent_id"] == found["work"]["context"]["span_id"]


def test_tasks_run_without_a_library(client, spans, caplog, monkeypatch):
    with TRACER.start_as_current_span("outer"):
        fields = tracing.inject()
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.setattr(tracing, "_noted", [])
    assert [tracing.run_in_span(abs, "abs", fields, {}, x) for x in (1, -2)] == [1, 2]
    assert caplog.text.count("pip install 'weft[otel]'") == 1
    assert caplog.records[0].code == "tracing-missing"
