"""The file of encoders and decoders: its functions are used only if they are of these messages."""

from __future__ import annotations

import sys

import pytest

from weft.protocol import coders_file, wire
from weft.protocol.errors import InternalError
from weft.protocol.wire import generating
from weft.protocol.wire import message as schema
from weft.protocol.wire import messages as m
from weft.protocol.wire.message import Message, coders_of

NAME = "weft.protocol.wire.coders"
WANT = m.WantKeys(keys=["a"])
WIRE = [17, ["a"], [], []]


@pytest.fixture
def made():
    """Return the module of the file."""
    coders_of(m.WantKeys)
    return sys.modules[NAME]


@pytest.fixture
def file(tmp_path, monkeypatch, made):
    # Put back after the test.
    monkeypatch.setitem(sys.modules, NAME, made)
    monkeypatch.setattr(wire, "coders", made)
    monkeypatch.setattr(coders_file, "FILE", tmp_path / "coders.py")
    return coders_file.FILE


@pytest.fixture
def missing(file, monkeypatch):
    monkeypatch.setitem(sys.modules, NAME, None)
    monkeypatch.delattr(wire, "coders")


def check_functions():
    to_wire, short_wire, decode = coders_of(m.WantKeys)
    assert to_wire(WANT) == short_wire(WANT) == WIRE
    assert decode(WIRE, []) == WANT


def test_the_file_of_this_checkout_has_the_functions_of_its_messages(made):
    assert coders_file.FILE.read_text(encoding="utf-8") == coders_file.text_of_file()


def test_a_missing_file_is_written(file, missing):
    check_functions()
    assert file.read_text(encoding="utf-8") == coders_file.text_of_file()
    assert [path.name for path in file.parent.iterdir() if path.is_file()] == ["coders.py"]


def test_a_file_of_other_declarations_is_written_again_and_never_used(file, made, monkeypatch):
    file.write_text("earlier", encoding="utf-8")
    (checksum, *functions) = made.CODERS[17]
    monkeypatch.setitem(made.CODERS, 17, (checksum ^ 1, *[None for _ in functions]))
    check_functions()
    assert file.read_text(encoding="utf-8") == coders_file.text_of_file()
    # From now on the new functions are found.
    assert schema._made_coders()[17][0] == checksum


def test_a_file_that_names_a_message_which_is_gone_is_not_used(missing, monkeypatch):
    monkeypatch.delitem(sys.modules, NAME)
    monkeypatch.delattr(m, "Bye")
    assert schema._made_coders() == {}


def test_without_a_file_that_can_be_written_each_process_makes_the_functions(
    tmp_path, missing, monkeypatch, caplog
):
    monkeypatch.setattr(coders_file, "FILE", tmp_path / "missing" / "coders.py")
    check_functions()
    assert "cannot be written" in caplog.text


def test_a_change_of_a_declaration_or_of_the_checks_changes_the_checksum(monkeypatch):
    before = generating.checksum_of(m.WantKeys)
    with monkeypatch.context() as patch:
        patch.setattr(m.WantKeys, "optional_columns", ())
        assert generating.checksum_of(m.WantKeys) != before
    with monkeypatch.context() as patch:
        patch.setitem(generating._FREQUENT, "Ids", "False")
        assert generating.checksum_of(m.WantKeys) != before
    assert generating.checksum_of(m.WantKeys) == before


def test_a_message_that_is_declared_elsewhere_has_no_functions(file):
    class Elsewhere(Message):
        code = 250
        __slots__ = ()

    with pytest.raises(InternalError, match="declared outside"):
        Elsewhere().to_wire()
