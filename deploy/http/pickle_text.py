"""Pickled arguments as text, without unpickling: nothing of them is imported or run. Pure.

    arguments_text(pickle.dumps((1, "a")), [])      # "(1, 'a')"

A page must not unpickle what users have pickled, because that runs their code. So the instructions
of the pickle are read one by one, and what they would build is written down: numbers, texts and
containers as Python writes them, all else by the name of its class. Long ones are cut.
"""

from __future__ import annotations

import pickletools
from collections.abc import Iterator, Sequence
from typing import Any, Final

#: Characters of one text or number, items of one container, containers in each other, and
#: characters in all.
MAX_ITEM_CHARS: Final = 120
MAX_ITEMS: Final = 20
MAX_DEPTH: Final = 6
MAX_CHARS: Final = 4000
#: Instructions that are read, and parts that are written: a part may be in others many times.
MAX_STEPS: Final = 20_000
MAX_PARTS: Final = 500

_BRACKETS: Final = {"list": "[]", "tuple": "()", "dict": "{}", "set": "{}", "frozenset": "{}"}
_CONSTANTS: Final = {"NONE": "None", "NEWTRUE": "True", "NEWFALSE": "False"}
_TUPLES: Final = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class _Mark:
    """A place in the stack."""


class _Node:
    """A container, or a call of a class."""

    __slots__ = ("head", "items", "kind")

    def __init__(self, kind: str, items: Sequence[Any] = (), head: str = "") -> None:
        self.kind = kind
        self.head = head
        self.items = list(items)


def arguments_text(blob: bytes, inputs: Sequence[str]) -> str:
    """Return the arguments of a call as text; `…` stands for what is cut or cannot be read.

    Args:
        blob: the pickle of the arguments: a tuple, or a list of a tuple and the named ones.
        inputs: keys of the results that the call reads.
    """
    found, writer = _read(blob), _ValueWriter()
    named: list[str] = []
    if isinstance(found, _Node) and found.kind == "list" and len(found.items) >= 2:
        args, kwargs = found.items[:2]
        if isinstance(kwargs, _Node) and kwargs.kind == "dict":
            pairs = zip(kwargs.items[::2], kwargs.items[1::2], strict=False)
            named = [f"{str(k).strip(chr(39))}={writer.text(v, 1)}" for k, v in pairs]
        found = args
    given = [
        writer.text(item, 1) for item in (found.items if isinstance(found, _Node) else [found])
    ]
    text = f"({', '.join([*given, *named])})"
    if inputs:
        names = ", ".join(inputs[:MAX_ITEMS])
        text += f"\nreads {names}{' …' if len(inputs) > MAX_ITEMS else ''}"
    return text if len(text) <= MAX_CHARS else text[: MAX_CHARS - 1] + "…"


def _read(blob: bytes) -> Any:
    """Return what a pickle builds, as nodes and texts."""
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    try:
        for n_steps, (name, argument) in enumerate(_instructions(blob)):
            if name == "STOP" or n_steps >= MAX_STEPS:
                break
            _step(stack, memo, name, argument)
    except (IndexError, KeyError, TypeError, ValueError):
        pass  # what was read so far is shown
    values = [one for one in stack if not isinstance(one, _Mark)]
    return values[0] if len(values) == 1 else _Node("tuple", [*values, "…"])


def _instructions(blob: bytes) -> Iterator[tuple[str, Any]]:
    for opcode, argument, _ in pickletools.genops(blob):
        yield opcode.name, argument


def _step(stack: list[Any], memo: dict[int, Any], name: str, argument: Any) -> None:
    if name in ("MEMOIZE", "BINPUT", "LONG_BINPUT", "PUT"):
        memo[len(memo) if argument is None else int(argument)] = stack[-1]
    elif name in ("BINGET", "LONG_BINGET", "GET"):
        stack.append(memo[int(argument)])
    elif name == "MARK":
        stack.append(_Mark())
    elif name in _CONSTANTS:
        stack.append(_CONSTANTS[name])
    elif name in _TUPLES:
        n = _TUPLES[name]
        items = [stack.pop() for _ in range(n)][::-1]
        stack.append(_Node("tuple", items))
    elif name in ("TUPLE", "LIST", "DICT", "FROZENSET"):
        items = _to_mark(stack)
        stack.append(_Node(name.lower(), items))
    elif name in ("EMPTY_LIST", "EMPTY_DICT", "EMPTY_SET"):
        stack.append(_Node(name[6:].lower()))
    elif name in ("APPEND", "SETITEM"):
        n = 1 if name == "APPEND" else 2
        items = [stack.pop() for _ in range(n)][::-1]
        _extend(stack[-1], items)
    elif name in ("APPENDS", "SETITEMS", "ADDITEMS"):
        items = _to_mark(stack)
        _extend(stack[-1], items)
    elif name == "STACK_GLOBAL":
        last, _ = stack.pop(), stack.pop()
        stack.append(_plain(last))
    elif name in ("GLOBAL", "INST"):
        short = str(argument).rpartition(" ")[2]
        stack.append(_Node("call", _to_mark(stack), short) if name == "INST" else short)
    elif name in ("REDUCE", "NEWOBJ", "NEWOBJ_EX"):
        if name == "NEWOBJ_EX":
            stack.pop()
        args, function = stack.pop(), stack.pop()
        stack.append(
            _Node("call", args.items if isinstance(args, _Node) else [args], _plain(function))
        )
    elif name == "OBJ":
        function, *items = _to_mark(stack)
        stack.append(_Node("call", items, _plain(function)))
    elif name == "BUILD":
        stack.pop()
        if isinstance(stack[-1], _Node) and "…" not in stack[-1].items:
            stack[-1].items.append("…")
    elif name == "POP":
        stack.pop()
    elif name == "POP_MARK":
        _to_mark(stack)
    elif name == "DUP":
        stack.append(stack[-1])
    elif name in ("PERSID", "BINPERSID"):
        if name == "BINPERSID":
            stack.pop()
        stack.append("<input>")
    elif name == "NEXT_BUFFER":
        stack.append("<buffer>")
    elif name in ("EXT1", "EXT2", "EXT4"):
        stack.append("…")
    elif name not in ("PROTO", "FRAME", "READONLY_BUFFER"):
        stack.append(_short(argument))


def _to_mark(stack: list[Any]) -> list[Any]:
    items: list[Any] = []
    while not isinstance(one := stack.pop(), _Mark):
        items.append(one)
    return items[::-1]


def _extend(node: Any, items: list[Any]) -> None:
    if isinstance(node, _Node):
        node.items += items


def _plain(name: Any) -> str:
    return name.strip("'") if isinstance(name, str) else "…"


def _short(value: Any) -> str:
    """Return a text, a number or bytes as Python writes them, cut if they are long."""
    if isinstance(value, (str, bytes, bytearray)):
        kept = value[:MAX_ITEM_CHARS]
        return repr(kept) + ("…" if len(value) > MAX_ITEM_CHARS else "")
    if isinstance(value, int) and value.bit_length() > 4 * MAX_ITEM_CHARS:
        return f"<int of {value.bit_length()} bits>"
    return repr(value)[:MAX_ITEM_CHARS]


class _ValueWriter:
    """Writes what was read, up to a number of parts."""

    def __init__(self) -> None:
        self._left = MAX_PARTS

    def text(self, value: Any, depth: int = 0) -> str:
        self._left -= 1
        if not isinstance(value, _Node):
            return str(value)
        if depth > MAX_DEPTH or self._left <= 0:
            return "…"
        step = 2 if value.kind == "dict" else 1
        texts = [self.text(item, depth + 1) for item in value.items[: step * MAX_ITEMS]]
        if step == 2:
            texts = [f"{k}: {v}" for k, v in zip(texts[::2], texts[1::2], strict=False)]
        if len(value.items) > step * MAX_ITEMS:
            texts.append("…")
        inner = ", ".join(texts)
        if value.kind == "call":
            return f"{value.head}({inner})"
        brackets = _BRACKETS[value.kind]
        comma = "," if value.kind == "tuple" and len(texts) == 1 else ""
        return f"{brackets[0]}{inner}{comma}{brackets[1]}"
