"""Walks: what the scheduler's core sends, event by event, as text (README.md has the notation).

`python -m tests.scheduler.core.walks` writes the answers anew.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from tests.scheduler.builders import Board, function_id, graph, inventory
from weft.protocol.wire import messages as m
from weft.protocol.wire.message import Message
from weft.scheduler.core.actions import CloseConnection, StopServer
from weft.scheduler.core.records.presence import Members

FOLDER: Final = Path(__file__).parent
FILES: Final = sorted(FOLDER.glob("*.txt"))

#: Fields that are not shown: they repeat what the script says, or measure.
LEFT_OUT: Final = {
    "args", "durations_us", "epoch_proof", "facts", "function_clients", "heartbeat_ms",
    "located_nbytes", "nbytes", "priorities", "session", "spec_hashes", "task_pass",
}  # fmt: skip
#: Fields that are shown although they are 0.
ZERO_TOO: Final = {"n_workers", "nthreads"}
FUNCTIONS: Final = {function_id("inc"): "inc", m.ACTOR_FUNCTION: "actor"}
#: What `Board.states` returns for a key without a task.
UNKNOWN: Final = {"-": "unknown"}


class Walk:
    """One scheduler, its peers by their names, and the keys of the attempts that were sent."""

    def __init__(self) -> None:
        self.board = Board()
        self.peers: dict[str, int] = {}
        self.keys: dict[int, str] = {}
        #: {a word after the peer's name: what happens}
        self.special: dict[str, Callable[..., object]] = {
            "RegisterClient": self._register_client,
            "RegisterWorker": self._register_worker,
            "RegisterSupervisor": self._register_supervisor,
            "SubmitTasks": self._submit,
            "AttemptsFinished": self._finish,
            "AttemptsErred": self._raise,
            "Inventory": self._inventory,
            "Operate": self._operate,
            "WorkerExited": self._exited,
            "disconnects": lambda name: self.board.close(self.peers[name]),
            "starts": self._start,
            "passes": self._pass,
        }

    def play(self, line: str) -> Iterator[str]:
        """Let an event of the script happen; yield the lines that answer it."""
        name, what, *words = line.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        if what in self.special:
            self.special[what](name, *plain, **options)
        else:
            self._send(name, self._message(what, plain, options))
        names = {peer: name for name, peer in self.peers.items()}
        for peer, messages in self.board.out.items():
            for message in messages:
                yield from self._shown(names.get(peer, f"peer {peer}"), message)
        for action in self.board.actions:
            if isinstance(action, CloseConnection):
                reason = f": {action.reason}" if action.reason else ""
                yield f"< {names[action.peer]} (closed{reason})"
            elif isinstance(action, StopServer):
                yield f"< (the scheduler ends: {action.reason})"

    # -- events -----------------------------------------------------------------------------------
    def _send(self, name: str, *messages: Message) -> None:
        self.board.send(self.peers[name], *messages)

    def _start(
        self, _name: str, epoch: str = "1", expects: str = "", first_attempt: str = "1"
    ) -> None:
        expected = [name for name in expects.split(",") if name]
        self.board = Board(
            epoch=int(epoch),
            away_s=5.0,
            max_idle_functions=64,
            expected=Members(
                tuple(f"id of {name}" for name in expected if name.startswith("w")),
                tuple(name for name in expected if not name.startswith("w")),
            ),
        )
        self.board.state.first_attempt = self.board.state.next_attempt = int(first_attempt)
        self.peers = {}

    def _pass(self, amount: str) -> None:
        self.board.tick(float(amount.removesuffix("s")))

    def _register(self, name: str, register: Callable[[], int]) -> None:
        # The peer is known by its name while it is answered.
        self.peers[name] = self.board._n_peers + 1
        register()

    def _register_client(self, name: str, last_epoch: str = "0") -> None:
        self._register(name, lambda: self.board.client(name, last_epoch=int(last_epoch)))

    def _register_supervisor(self, name: str) -> None:
        self._register(name, lambda: self.board.supervisor(name))

    def _register_worker(self, name: str, nthreads: str = "1", last_epoch: str = "0") -> None:
        numbers = {"nthreads": int(nthreads), "last_epoch": int(last_epoch)}
        self._register(name, lambda: self.board.worker(name, supervisor_id="supervisor", **numbers))

    def _submit(self, name: str, *lines: str, actor: str = "", **options: str) -> None:
        numbers: dict[str, Any] = {option: int(value) for option, value in options.items()}
        message = graph(*" ".join(lines).split(";"), **numbers)
        if actor:
            message.functions = [m.ACTOR_FUNCTION]
        self._send(name, message)

    def _finish(self, name: str, *attempts: str, result: str = "") -> None:
        numbers = [*map(number_of, attempts)]
        message = m.AttemptsFinished(
            attempts=numbers,
            nbytes=[8 if result else 1 << 20] * len(numbers),
            durations_us=[1000] * len(numbers),
            results=[result.encode() or None] * len(numbers),
        )
        self._send(name, message)

    def _raise(self, name: str, attempt: str, error: str) -> None:
        message = m.AttemptsErred(
            attempts=[number_of(attempt)],
            durations_us=[1000],
            failures=[["exception", attempt.partition("#")[0], error]],
        )
        self._send(name, message)

    def _inventory(self, name: str, **rows: str) -> None:
        kinds: dict[str, Any] = {
            kind: {row.partition("#")[0]: number_of(row) for row in some.split(",")}
            for kind, some in rows.items()
        }
        self._send(name, *inventory(**kinds, functions=["inc"]))

    def _operate(self, name: str, kind: str, operation: str, thing: str, **given: str) -> None:
        request = int(given.pop("request"))
        arguments: dict[str, Any] = {"owner": name, "lease": str(request), **given}
        if "timeout" in given:
            arguments["timeout"] = float(given["timeout"])
        self._send(
            name,
            m.Operate(
                request=request, kind=kind, operation=operation, name=thing, arguments=arguments
            ),
        )

    def _exited(self, name: str, worker: str, *running: str, reason: str) -> None:
        self._send(
            name,
            m.WorkerExited(
                worker_id=f"id of {worker}",
                reason=reason.replace("_", " "),
                running=[*map(number_of, running)],
                kind="signal",
            ),
        )

    def _message(self, what: str, words: list[str], options: dict[str, str]) -> Message:
        """Make any other message: its words are keys or attempts, and the rest is text or empty."""
        kind: Any = getattr(m, what)
        named: dict[str, Any] = {"keys": [word.partition("#")[0] for word in words]}
        named["attempts"] = [number_of(word) for word in words if "#" in word]
        filled: dict[str, Any] = {}
        for field in fields(kind):
            if field.name in options:
                filled[field.name] = value_of(options[field.name], field.type)
            elif named.get(field.name) or field.name in kind._names[: kind._n_required]:
                filled[field.name] = named.get(field.name) or EMPTY[str(field.type)]()
        return kind(**filled)  # type: ignore[no-any-return]

    # -- answers ----------------------------------------------------------------------------------
    def _shown(self, name: str, message: Message) -> Iterator[str]:
        if isinstance(message, m.AssignTasks):
            self.keys.update(zip(message.attempts, message.keys, strict=True))
        head = f"< {name} {type(message).__name__}"
        rows = [*self._rows(message)]
        in_rows = {*message.columns, *message.optional_columns}
        in_rows |= {column for table in message._tables for column in table}
        alone = {f.name: getattr(message, f.name) for f in fields(message)}  # type: ignore[arg-type]
        head += shown_fields({k: v for k, v in alone.items() if k not in in_rows})
        if len(rows) == 1:
            yield f"{head} {rows[0]}"
            return
        yield head
        yield from (f"<     {row}" for row in rows)

    def _rows(self, message: Message) -> Iterator[str]:
        """Yield the rows of the columns, with what they point to, and of the other tables."""
        columns = [*message.columns, *message.optional_columns]
        tables = dict(message._indexes)
        for i in range(len(getattr(message, columns[0])) if columns else 0):
            row = {c: at(message, c, i) for c in columns if c not in tables}
            for index, table in tables.items():
                place = at(message, index, i) or 0
                row |= {c: at(message, c, place) for c in table}
            yield self._row(row, "")
        for table in message._tables:
            if table not in tables.values():
                prefix = f"{table[0].split('_')[0]}_" if "_" in table[0] else ""
                for i in range(len(getattr(message, table[0]))):
                    row = {c.removeprefix(prefix): at(message, c, i) for c in table}
                    yield self._row(row, prefix.replace("_", " "))

    def _row(self, row: dict[str, Any], prefix: str) -> str:
        attempt = row.pop("attempts", 0)
        key = row.pop("keys", "") or self.keys.get(attempt, "")
        name = f"{key}#{attempt}" if attempt else str(key)
        return f"{prefix}{name}{shown_fields({singular(c): v for c, v in row.items()})}".strip()


def number_of(attempt: str) -> int:
    """Return the number in `key#number`."""
    return int(attempt.partition("#")[2])


def at(message: Message, column: str, i: int) -> Any:
    values = getattr(message, column)
    return None if not values or column in LEFT_OUT else values[i]


def singular(column: str) -> str:
    return column if column == "dependencies" else column.removesuffix("s")


#: {schema of a field: makes the value of one that the script does not name}
EMPTY: Final[dict[str, Callable[[], Any]]] = {
    "Text": str, "Number": int, "Flag": bool, "Keys": list, "Ints": list, "Info": dict,
}  # fmt: skip


def value_of(text: str, schema: Any) -> Any:
    if schema == "Flag":
        return text == "yes"
    return int(text) if schema == "Number" else text.replace("_", " ")


def shown_fields(values: dict[str, Any]) -> str:
    """Show what is neither left out nor empty."""
    shown = ""
    for name, value in values.items():
        if name in LEFT_OUT or (value in (None, 0, "", [], {}, ()) and name not in ZERO_TOO):
            continue
        is_flag = value is True or name == "wanted"
        shown += f" {name}" if is_flag else f" {name}={shown_value(value)}"
    return shown


def shown_value(value: Any) -> str:
    if isinstance(value, bytes):
        return FUNCTIONS.get(value) or shown_value(value.decode())
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(shown_value, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {shown_value(v)}" for k, v in value.items()) + "}"
    text = str(value)
    return f'"{text}"' if " " in text else text


def played(text: str) -> str:
    """Return a script with the answers of today."""
    walk = Walk()
    lines = []
    for line in text.splitlines():
        if line.startswith(("<", "=")):
            continue
        lines.append(line)
        if line.startswith("> "):
            lines += walk.play(line[2:])
        elif line.startswith("? "):
            keys = line[2:].split()
            states = zip(keys, walk.board.states(*keys), strict=True)
            lines.append(
                "= " + ", ".join(f"{key} {UNKNOWN.get(state, state)}" for key, state in states)
            )
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)) + "\n"
