"""Today's code sends the recorded bytes, and reads those of each version that changed them."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tests.protocol.wire import goldens
from weft.protocol.wire.message import Message

RECORDED = goldens.recorded()
SAMPLES = dict(goldens.samples())


def test_everything_is_recorded_and_nothing_has_changed() -> None:
    latest = {name: lines[-1] for name, lines in RECORDED.items()}
    hint = (
        "if a message was added or has grown, run: python -m tests.protocol.wire.goldens --record"
    )
    assert latest == goldens.current(), hint


def default_of(cls: type[Message], name: str) -> Any:
    (field,) = [field for field in dataclasses.fields(cls) if field.name == name]  # type: ignore[arg-type]
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


@pytest.mark.parametrize("name", SAMPLES)
def test_recorded_bytes_are_read(name: str) -> None:
    sample = SAMPLES[name]
    cls = type(sample)
    for data in RECORDED[name]:
        message = goldens.decoded(data)
        assert type(message) is cls
        n_sent = len(goldens.wire_of(data)) - 1
        for i, field in enumerate(cls._names):
            expected = getattr(sample, field) if i < n_sent else default_of(cls, field)
            assert getattr(message, field) == expected, field


def test_recording_adds_what_has_grown_and_refuses_what_has_changed(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(goldens, "FILE", tmp_path / "recorded.txt")
    assert goldens.record(force=False) == []
    first = (tmp_path / "recorded.txt").read_text()
    assert goldens.record(force=False) == []
    assert (tmp_path / "recorded.txt").read_text() == first
    name, data = next(
        (name, data) for name, data in goldens.current().items() if "KeysMissing one" in name
    )
    # As if `unreachable` had come later: both are kept.
    shorter = goldens.encoded(_Shortened(SAMPLES[name]))
    (tmp_path / "recorded.txt").write_text(first.replace(data.hex(), shorter.hex()))
    assert goldens.record(force=False) == []
    assert goldens.recorded()[name] == [shorter, data]
    # As if its first field had changed.
    other = goldens.encoded(_Changed(SAMPLES[name]))
    (tmp_path / "recorded.txt").write_text(first.replace(data.hex(), other.hex()))
    assert goldens.record(force=False) == [name]
    assert goldens.recorded()[name] == [other]
    assert goldens.record(force=True) == []
    assert (tmp_path / "recorded.txt").read_text() == first


class _Variant(Message):
    __slots__ = ("of",)

    def __init__(self, of: Message) -> None:
        self.of = of


class _Shortened(_Variant):
    __slots__ = ()

    def short_wire(self) -> list[Any]:
        return self.of.to_wire()[:-1]


class _Changed(_Variant):
    __slots__ = ()

    def short_wire(self) -> list[Any]:
        code, _, *rest = self.of.to_wire()
        return [code, ["another key"], *rest]
