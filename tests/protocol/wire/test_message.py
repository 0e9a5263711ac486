"""Schema checks: the values that each schema name accepts, and those that it refuses."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from tests.protocol.strategies import CLASSES, schema_names
from weft.protocol.errors import RemoteProtocolError
from weft.protocol.wire import messages
from weft.protocol.wire.columns import (
    CHECKS,
    MAX_FACTS_DEPTH,
    MAX_FACTS_NBYTES,
)
from weft.protocol.wire.message import (
    MAX_FACTS,
    MAX_ITEMS,
    MAX_KEY_CHARS,
    MAX_TEXT_CHARS,
    Message,
    Unknown,
    from_wire,
    message,
)
from weft.protocol.wire.messages import (
    Answer,
    AssignTasks,
    GetData,
    KeysData,
    KeysErred,
    KeysMissing,
    RegisterSupervisor,
    RegisterWorker,
    SubmitTasks,
    Unsupported,
    WantKeys,
    unsupported,
)
from weft.protocol.wire.payload import Payload
from weft.protocol.wire.roles import ALL

BUFFERS = [bytearray(b"pickle"), bytearray(b"buffer 1"), bytearray(b"buffer 2")]
LONG = MAX_ITEMS + 1

GOOD: dict[str, list[Any]] = {
    "Keys": [[], ["a"], ["a", "ü" * MAX_KEY_CHARS]],
    "Texts": [[], ["", "tcp://h:1"], ["x" * MAX_TEXT_CHARS]],
    "Ints": [[], [0, 1, 2**63 - 1]],
    "Sizes": [[], [0, 1, 2**48]],
    "Ids": [[], [b"0123456789abcdef"]],
    "Blobs": [[], [b"", None, b"x"], [b"a"]],
    "KeyLists": [[], [[], ["a", "b"]], [["a"] * 100] * 100],
    "Failures": [[], [["cancelled", "k", "why"]], [["exception", "k", None, b"", 1]]],
    "Options": [
        [],
        [{}, {}],
        [{"priority": -9999, "retries": 2, "delivered": True}, {"priority": 9999}],
        [{"workers": ["w"], "allow_other_workers": True, "resources": {"GPU": 1.5}}],
    ],
    "Number": [0, 2**63 - 1],
    "Text": ["", "x" * MAX_TEXT_CHARS],
    "Flag": [True, False],
    "Amounts": [{}, {"gpu": 1, "memory": 1.5}],
    "Facts": [{}, {"versions": {"python": [3, 11]}, "n": None}],
    "Info": [{}, {"workers": {str(i): {} for i in range(MAX_FACTS + 1)}}],
}
BAD: dict[str, list[Any]] = {
    "Keys": [None, "abc", {}, [1], ["a", None], ["a", b"b"], [""], ["k" * (MAX_KEY_CHARS + 1)]],
    "Texts": [None, "abc", [1], ["a", b"b"], ["x" * (MAX_TEXT_CHARS + 1)]],
    "Ints": [None, 1, [-1], [2**63], [True], [1.0], ["1"], [1, None]],
    "Sizes": [None, 1, [-1], [2**48 + 1], [1, 2**63 - 1], [True], [1.0], ["1"], [1, None]],
    "Ids": [None, b"0123456789abcdef", [b"short"], ["0123456789abcdef"], [bytes(17)]],
    "Blobs": [
        None,
        b"x",
        ["text"],
        [1],
        [[]],
        [[0]],
        [[0, 1, 1]],
        [[0, 0]],
        [[-1, 2]],
        [[2, 2]],
        [[3, 1]],
        [["0", 1]],
        [[True, 1]],
        [{}],
    ],
    "KeyLists": [None, [None], ["ab"], [[1]], [["a", ""]], [{}]],
    "Failures": [
        None,
        [[]],
        [["one"]],
        [[1, "k"]],
        ["text"],
        [["k"] * 13],
        [["k", "k", {}]],
        [["k", []]],
    ],
    "Options": [
        None,
        {},
        [1],
        [{b"priority": 1}],
        [{}, {"priority": 10_000}],
        [{"priority": -10_000}],
        [{"priority": True}],
        [{"retries": -1}],
        [{"workers": "w"}],
        [{"workers": [1]}],
        [{"allow_other_workers": 1}],
        [{"resources": {"GPU": -1}}],
        [{"delivered": None}],
        [{"span": "tag"}],
        [{"span": [""]}],
        [{"span": ["x" * 101]}],
        [{"span": ["x"] * 17}],
    ],
    "Number": [None, -1, 2**63, True, 1.0, "1"],
    "Text": [None, 1, b"x", "x" * (MAX_TEXT_CHARS + 1)],
    "Flag": [None, 0, 1, "true"],
    "Amounts": [
        None,
        [],
        {"gpu": "1"},
        {"gpu": True},
        {"gpu": -1},
        {"gpu": math.nan},
        {"gpu": math.inf},
        {b"gpu": 1},
        {str(i): 1 for i in range(65)},
    ],
    "Facts": [None, [], {b"a": 1}, {str(i): 1 for i in range(MAX_FACTS + 1)}],
    "Info": [None, [], {b"a": 1}, {str(i): 1 for i in range(MAX_FACTS + 1)}],
}
#: An item of a column, to make one that is too long.
ITEM: dict[str, Any] = {
    "Keys": "k",
    "Texts": "t",
    "Ints": 1,
    "Sizes": 1,
    "Ids": bytes(16),
    "Blobs": b"",
    "KeyLists": [],
    "Failures": ["kind", "key"],
    "Options": {},
}


def test_every_schema_name_is_in_these_tables() -> None:
    assert set(GOOD) == set(BAD) == set(CHECKS)


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, vs in GOOD.items() for v in vs])
def test_good_value_passes_unchanged(name: str, value: Any) -> None:
    assert CHECKS[name](value, BUFFERS) == value


@pytest.mark.parametrize(
    ("name", "value"),
    [pytest.param(n, v, id=f"{n}-{i}") for n, vs in BAD.items() for i, v in enumerate(vs)],
)
def test_bad_value_is_refused(name: str, value: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        CHECKS[name](value, BUFFERS)


@pytest.mark.parametrize("name", ITEM)
def test_column_beyond_the_limit_is_refused(name: str) -> None:
    CHECKS[name]([ITEM[name]] * 3, [])
    with pytest.raises(ValueError, match="limit"):
        CHECKS[name]([ITEM[name]] * LONG, [])


def test_key_lists_are_limited_by_the_sum_of_their_keys() -> None:
    with pytest.raises(ValueError, match="limit"):
        CHECKS["KeyLists"]([["k"] * (MAX_ITEMS // 2 + 1)] * 2, [])


def test_blob_reference_becomes_a_payload_of_the_frames_own_buffers() -> None:
    (none, plain, small, large) = CHECKS["Blobs"]([None, b"x", [0, 1], [0, 3]], BUFFERS)
    assert (none, plain) == (None, b"x")
    assert isinstance(small, Payload)
    assert small.data is BUFFERS[0]
    assert list(small.buffers) == []
    assert isinstance(large, Payload)
    assert [large.data, *large.buffers] == BUFFERS
    assert large.buffers[1] is BUFFERS[2]


def test_codes_fit_one_byte_and_each_message_is_a_name_of_the_package() -> None:
    declared = {
        cls for cls in vars(messages).values() if isinstance(cls, type) and issubclass(cls, Message)
    }
    assert declared - {Message, Unknown} == {*CLASSES}
    assert {cls.code for cls in CLASSES} <= set(range(1, 256))


@pytest.mark.parametrize("cls", CLASSES)
def test_each_message_is_declared_with_its_senders_or_receivers(cls) -> None:
    assert cls.senders or cls.receivers
    assert {*cls.senders, *cls.receivers} <= {*ALL}


def test_a_used_code_cannot_be_used_again() -> None:
    with pytest.raises(ValueError, match="GetData"):

        @message(GetData.code)
        class Second(Message):
            pass


# --- Growth ---------------------------------------------------------------------------------------


def test_missing_trailing_fields_get_their_defaults() -> None:
    missing = from_wire([KeysMissing.code, ["k"], "tcp://h:1"], [])
    assert missing == KeysMissing(keys=["k"], holder="tcp://h:1", unreachable=False)
    first, second = (from_wire([WantKeys.code, ["k"]], []) for _ in range(2))
    assert isinstance(first, WantKeys)
    assert isinstance(second, WantKeys)
    assert first == WantKeys(keys=["k"], spec_hashes=[])
    assert first.spec_hashes is not second.spec_hashes


@pytest.mark.parametrize("later", [None, 1, ["k"], {"a": {}}, [[0, 3]]])
def test_unknown_trailing_fields_are_skipped(later: Any) -> None:
    whole = GetData(request=1, keys=["k"])
    assert from_wire([*whole.to_wire(), later, later], []) == whole


@pytest.mark.parametrize(
    ("rest", "request_number"),
    [([], 0), ([7], 7), ([7, {}], 7), ([-1], 0), ([2**63], 0), ([True], 0), (["7"], 0), ([[7]], 0)],
)
def test_unknown_code_is_decoded_with_its_request(rest: list[Any], request_number: int) -> None:
    unknown = from_wire([250, *rest], [])
    assert isinstance(unknown, Unknown)
    assert (unknown.unknown_code, unknown.request) == (250, request_number)
    answer = unsupported(unknown)
    assert answer == Unsupported(unknown_code=250, request=request_number)
    assert from_wire(answer.to_wire(), []) == answer
    assert unknown.parts(1) == [unknown]


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_columns_are_declared_of_fields_that_are_columns(cls: type[Message]) -> None:
    names = schema_names(cls)
    assert set(cls.columns) | set(cls.optional_columns) <= set(names)
    assert all(names[name] in ITEM for name in (*cls.columns, *cls.optional_columns))
    assert set(cls.columns).isdisjoint(cls.optional_columns)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_tables_are_declared_of_lists_that_are_no_columns(cls: type[Message]) -> None:
    names = schema_names(cls)
    listed = [name for table in cls._tables for name in table]
    assert len(set(listed)) == len(listed)
    assert all(names[name] in ITEM for name in listed)
    assert set(listed).isdisjoint((*cls.columns, *cls.optional_columns))
    # A message without columns is never cut, because nothing shows what belongs to a row.
    assert not listed or cls.columns
    for index, table in cls._indexes:
        assert names[index] == "Ints"
        assert index in (*cls.columns, *cls.optional_columns)
        assert table in cls._tables


@pytest.mark.parametrize(
    ("wire", "text"),
    [
        (None, "array"),
        ({}, "array"),
        ([], "array"),
        (["69", 1, []], "array"),
        ([True, 1, []], "array"),
        ([0, 1], "message code 0 is not between 1 and 255"),
        ([-1], "message code -1 is not between 1 and 255"),
        ([2**70, 1], "is not between 1 and 255"),
        ([GetData.code], "GetData: at least 2 fields expected, 0 came"),
        ([KeysMissing.code, ["k"]], "KeysMissing: at least 2 fields expected, 1 came"),
        ([GetData.code, "1", []], "GetData.request: a whole number"),
        ([GetData.code, 1, [""]], "GetData.keys: a key has 1 to"),
        ([KeysData.code, 1, ["a", "b"], [b"x"], []], "KeysData.results: 1 items for 2 rows"),
        ([KeysData.code, 1, ["a"], [[0, 1]], []], "a frame|the frame"),
    ],
)
def test_wrong_message_is_refused_with_its_reason(wire: Any, text: str) -> None:
    with pytest.raises(RemoteProtocolError, match=text):
        from_wire(wire, [])


def submit(**changes: Any) -> list[Any]:
    fields: dict[str, Any] = {
        "functions": [bytes(16)],
        "function_names": ["f"],
        "function_blobs": [b"f"],
        "function_of": [0, 0],
        "keys": ["a", "b"],
        "args": [b"1", b"2"],
        "dependencies": [],
        "spec_hashes": [],
        "options": [{}],
        "option_of": [],
        "ranks": [],
    }
    return SubmitTasks(**{**fields, **changes}).to_wire()


def test_optional_column_is_empty_or_complete() -> None:
    for dependencies in ([], [["x"], []]):
        decoded = from_wire(submit(dependencies=dependencies), [])
        assert isinstance(decoded, SubmitTasks)
        assert decoded.dependencies == dependencies
    with pytest.raises(RemoteProtocolError, match=r"SubmitTasks.dependencies: 1 items for 2 rows"):
        from_wire(submit(dependencies=[["x"]]), [])


TABLE = "functions function_names function_blobs"


@pytest.mark.parametrize("name", TABLE.split())
@pytest.mark.parametrize("change", ["longer", "shorter"])
def test_lists_of_a_table_have_one_length(name: str, change: str) -> None:
    more: dict[str, Any] = {"functions": bytes(16), "function_names": "g", "function_blobs": None}
    whole: dict[str, list[Any]] = {
        "functions": [bytes(16)] * 2,
        "function_names": ["f"] * 2,
        "function_blobs": [b"f"] * 2,
    }
    assert isinstance(from_wire(submit(**whole), []), SubmitTasks)
    unequal = [*whole[name], more[name]] if change == "longer" else whole[name][:-1]
    with pytest.raises(
        RemoteProtocolError, match=r"SubmitTasks.function_\w+: \d items for \d rows"
    ):
        from_wire(submit(**{**whole, name: unequal}), [])


def test_second_table_is_checked_as_the_first() -> None:
    def assign(**changes: Any) -> list[Any]:
        fields: dict[str, Any] = {
            "functions": [bytes(16)],
            "function_blobs": [None],
            "function_clients": [0],
            "function_of": [0],
            "keys": ["k"],
            "attempts": [1],
            "priorities": [0],
            "args": [b""],
            "wanted": [0],
            "dependencies": [["d", "e"]],
            "located_keys": ["d", "e"],
            "located_attempts": [3, 4],
            "located_nbytes": [5, 6],
            "located_holders": [["h"], ["h"]],
        }
        return AssignTasks(**{**fields, **changes}).to_wire()

    assert isinstance(from_wire(assign(), []), AssignTasks)
    for name, value in {
        "located_attempts": [3],
        "located_nbytes": [5, 6, 7],
        "located_holders": [],
    }.items():
        with pytest.raises(RemoteProtocolError, match=rf"AssignTasks.{name}: \d items for 2 rows"):
            from_wire(assign(**{name: value}), [])
    assert isinstance(from_wire(assign(function_options=[{}]), []), AssignTasks)
    with pytest.raises(RemoteProtocolError, match=r"function_options: 2 items for 1 row"):
        from_wire(assign(function_options=[{}, {}]), [])
    with pytest.raises(RemoteProtocolError, match=r"AssignTasks.function_of points beyond"):
        from_wire(assign(function_of=[1]), [])


@pytest.mark.parametrize(
    ("function_of", "n_functions", "is_good"),
    [
        ([0, 0], 1, True),
        ([1, 0], 2, True),
        ([0, 1], 1, False),
        ([0, 2**63 - 1], 1, False),
        ([0, 0], 0, False),
    ],
)
def test_index_points_into_the_first_table(
    function_of: list[int], n_functions: int, is_good: bool
) -> None:
    wire = submit(
        functions=[bytes(16)] * n_functions,
        function_names=["f"] * n_functions,
        function_blobs=[b"f"] * n_functions,
        function_of=function_of,
    )
    if is_good:
        assert isinstance(from_wire(wire, []), SubmitTasks)
    else:
        with pytest.raises(RemoteProtocolError, match=r"SubmitTasks.function_of points beyond"):
            from_wire(wire, [])


def test_an_option_that_this_version_does_not_know_is_left_out() -> None:
    decoded = from_wire(submit(options=[{"later": [1], "retries": 2}, {"later": None}]), [])
    assert isinstance(decoded, SubmitTasks)
    assert decoded.options == [{"retries": 2}, {}]


def test_options_are_checked_by_name() -> None:
    text = "SubmitTasks.options: option priority: a priority is a whole number from -9999 to 9999"
    with pytest.raises(RemoteProtocolError, match=text):
        from_wire(submit(options=[{"priority": 10_000}]), [])
    with pytest.raises(RemoteProtocolError, match=r"SubmitTasks.option_of points beyond"):
        from_wire(submit(options=[{}], option_of=[0, 1]), [])
    with pytest.raises(RemoteProtocolError, match=r"SubmitTasks.ranks: 1 items for 2 rows"):
        from_wire(submit(ranks=[0]), [])


def test_parts_have_only_their_options() -> None:
    options = [{"priority": i} for i in range(10)]
    whole = from_wire(
        submit(
            function_of=[0] * 20,
            keys=[f"k{i}" for i in range(20)],
            args=[b""] * 20,
            options=options,
            option_of=[i // 2 for i in range(20)],
        ),
        [],
    )
    parts = whole.parts(4)
    assert all(isinstance(part, SubmitTasks) for part in parts)
    assert [part.options for part in parts] == [options[i : i + 2] for i in range(0, 10, 2)]  # type: ignore[attr-defined]
    assert all(part.option_of == [0, 0, 1, 1] for part in parts)  # type: ignore[attr-defined]


@pytest.mark.parametrize("has_options", [True, False])
def test_parts_have_only_their_functions(has_options: bool) -> None:
    options = [{"resources": {"r": i + 1.0}} for i in range(6)] if has_options else []
    whole = AssignTasks(
        functions=[bytes([i] * 16) for i in range(6)],
        function_blobs=[None] * 6,
        function_clients=[0] * 6,
        function_of=[*range(6)],
        keys=[f"k{i}" for i in range(6)],
        attempts=[*range(6)],
        priorities=[0] * 6,
        args=[b""] * 6,
        wanted=[0] * 6,
        dependencies=[],
        located_keys=[],
        located_attempts=[],
        located_nbytes=[],
        located_holders=[],
        function_options=options,
    )
    first, second, third = whole.parts(2)
    assert [len(part.functions) for part in (first, second, third)] == [2, 2, 2]  # type: ignore[attr-defined]
    assert second.function_options == options[2:4]  # type: ignore[attr-defined]


def test_no_rows_need_no_table() -> None:
    empty = KeysErred(keys=[], failure_of=[], failures=[])
    assert from_wire(empty.to_wire(), []) == empty


def test_messages_are_built_by_name_only() -> None:
    with pytest.raises(TypeError):
        GetData(1, ["a"])  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        GetData(request=1)  # type: ignore[call-arg]
    assert not hasattr(GetData(request=1, keys=[]), "__dict__")
    assert next(field.name for field in dataclasses.fields(RegisterWorker)) == "worker_id"


def nested(depth: int, innermost: object = 1) -> dict[str, Any]:
    facts = innermost
    for n in range(depth):
        facts = {"a": facts} if n % 2 or n == depth - 1 else [facts]
    assert isinstance(facts, dict)
    return facts


@pytest.mark.parametrize(
    ("facts", "problem"),
    [
        (nested(MAX_FACTS_DEPTH), None),
        (nested(MAX_FACTS_DEPTH + 1), "nested in more than 8 maps and lists"),
        (nested(1020), "nested in more than 8 maps and lists"),
        ({"a": "x" * (MAX_FACTS_NBYTES - 100)}, None),
        ({"a": "x" * MAX_FACTS_NBYTES}, "facts take 65553 bytes or more, the limit is 65536"),
        (nested(3, b"x" * MAX_FACTS_NBYTES), "the limit is 65536"),
        ({"a": [0] * 9000}, "the limit is 65536"),
        ({1: 2}, "a map with text keys is expected"),
    ],
)
def test_facts_are_small_and_flat_because_they_are_passed_on_to_others(facts, problem):
    message = RegisterSupervisor(supervisor_id="s", session=1, last_epoch=0, facts=facts)
    if problem is None:
        assert from_wire(message.to_wire(), []) == message
    else:
        with pytest.raises(RemoteProtocolError, match=problem):
            from_wire(message.to_wire(), [])


def test_an_answer_may_hold_the_facts_of_many_peers():
    facts = nested(MAX_FACTS_DEPTH, "x" * 60_000)
    answer = Answer(request=1, info={"workers": {str(n): facts for n in range(10)}})
    assert from_wire(answer.to_wire(), []) == answer
