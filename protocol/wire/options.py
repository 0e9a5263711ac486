"""The options of tasks: one table, of which all is made that handles them.

A row of `TaskOptions` declares an option: its type, its default, the check of what arrives, the
keywords of `submit` and `map` by which users give it, and the column of `AssignTasks` that takes it
to workers. Every option goes to the scheduler, where the group of a task has them as one value.

On the wire the options of a row are a map, without those that have their default. A scheduler may
not know an option of a newer client. It leaves it out, which is right for a hint. One that *must be
understood*, as a limit, comes with a mark: an amount of a resource that no worker has. A scheduler
that knows the option takes the mark away, one that does not refuses the row, and one of a version
before the mark has the row wait. Options of the first version have none, since all know them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from ..amounts import CORES, MEMORY
from ..array_rows import check_parts
from .columns import (
    CHECKS,
    MAX_FACTS_DEPTH,
    MAX_NUMBER,
    MAX_PAUSE_S,
    MAX_SIZE,
    MAX_SPAN_TAGS,
    MAX_TAG_CHARS,
    as_column,
)

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_options: Any) -> Callable[[type], type]:
        """Stand in for the typing decorator, which has no effect at run time."""
        return lambda cls: cls


_T = TypeVar("_T")
_Check = Callable[[Any, list[Any]], Any]

Options = list[dict[str, Any]]  #: the schema of what messages carry; {} = all defaults

#: The highest priority that a user may give; the lowest is its negative.
MAX_PRIORITY: Final = 9999
#: Size of the data of `meta=`: texts count in UTF-8, and each item 64 more.
MAX_META_NBYTES: Final = 2048
#: What all texts of the context of a trace may have, in characters.
MAX_TRACE_CHARS: Final = 4096
#: The most conditions of a task on how others have ended.
MAX_CONDITIONS: Final = 10_000
#: The most tasks that start at the same time.
MAX_GANG: Final = 1024
#: How a task can end, and the last one for any of these.
DONE, FAILED, CANCELLED, LOST, ENDED = ENDS = ("done", "failed", "cancelled", "lost", "ended")
#: What is done with a run whose time has come while an earlier one is under way.
OVERLAPS: Final = ("skip", "queue", "replace")
#: Which runs are made of those whose time came while no scheduler was there.
MISSED: Final = ("one", "all", "none")
#: A call is a straggler after at most so many times the mean of its category.
MAX_MULTIPLE: Final = 1e6
#: How the first allocation of a task is chosen from what others of its category have used; as Work
#: Queue and TaskVine name them.
FIXED, MAX_SEEN, MIN_WASTE, MAX_THROUGHPUT = MODES = ("fixed", "max", "min waste", "max throughput")
#: The mark of an option that must be understood is 1 of a resource: this, and the option's name.
MARK: Final = "understanding of "


class Option(NamedTuple):
    """One option of a task."""

    default: Any  #: false, so that an option that is not false is one to be sent
    check: _Check
    keywords: tuple[str, ...]  #: of `submit` and `map`; () = users do not give it
    column: str  #: of `AssignTasks`; "" = workers need not know it
    must_understand: bool
    is_shown: bool  #: with the attempts of the task: by the task stream, and by `Future.attempts`


def option(
    check: _Check,
    *,
    default: _T,
    keyword: str | tuple[str, ...] = (),
    column: str = "",
    must_understand: bool = False,
    is_shown: bool = False,
) -> _T:
    """Declare an option in the body of `TaskOptions`."""
    assert not default
    keywords = (keyword,) if isinstance(keyword, str) else keyword
    declared: Any = Option(default, check, keywords, column, must_understand, is_shown)
    return declared  # type: ignore[no-any-return]


# -- checks, beside those of columns ---------------------------------------------------------------
def _check_priority(value: Any, _buffers: list[Any]) -> int:
    if type(value) is not int or not -MAX_PRIORITY <= value <= MAX_PRIORITY:
        raise TypeError(f"a priority is a whole number from -{MAX_PRIORITY} to {MAX_PRIORITY}")
    return value


def _check_size(value: Any, _buffers: list[Any]) -> int:
    if type(value) is not int or not 0 <= value <= MAX_SIZE:
        raise TypeError("a whole number from 0 to 2**48 is expected")
    return value


def _check_pauses(value: Any, _buffers: list[Any]) -> list[float]:
    """Check a first pause, a factor, a longest pause (seconds) and a share from 0 to 1."""
    if type(value) is not list or len(value) != 4 or set(map(type, value)) - {int, float}:
        raise TypeError("four numbers are expected")
    first, factor, longest, jitter = value
    if not (0 <= first <= MAX_PAUSE_S and 0 <= longest <= MAX_PAUSE_S):
        raise ValueError(f"pauses from 0 to {MAX_PAUSE_S} s are expected")
    if not (1 <= factor <= MAX_PAUSE_S and 0 <= jitter <= 1):
        raise ValueError("a factor of at least 1 and a share from 0 to 1 are expected")
    return value


def _check_conditions(value: Any, buffers: list[Any]) -> list[list[str]]:
    """Check states in which others are to end, each with a key."""
    if type(value) is not list or len(value) > MAX_CONDITIONS:
        raise TypeError(f"a list of at most {MAX_CONDITIONS} states and keys is expected")
    for pair in value:
        texts: list[str] = CHECKS["Texts"](pair, buffers)
        if len(texts) != 2 or texts[0] not in ENDS:
            raise ValueError(f"a state of {', '.join(ENDS)} and a key are expected")
    return value


def _check_queue(value: Any, buffers: list[Any]) -> str:
    """Check the name of a queue of jobs."""
    name: str = CHECKS["Text"](value, buffers)
    if not is_queue_name(name):
        raise ValueError(f"1 to {MAX_TAG_CHARS} characters are expected, and no NUL")
    return name


def is_queue_name(name: str) -> bool:
    """Return whether a queue of jobs may have this name. No database has texts with a NUL."""
    return 0 < len(name) <= MAX_TAG_CHARS and "\0" not in name


def _check_gang(value: Any, buffers: list[Any]) -> list[str]:
    """Check the name of a gang, a rank in it, and its size."""
    texts: list[str] = CHECKS["Texts"](value, buffers)
    if len(texts) != 3 or not 0 < len(texts[0]) <= MAX_TAG_CHARS:
        raise ValueError("a name, a rank and a size are expected")
    if not (texts[1].isdecimal() and texts[2].isdecimal()):
        raise ValueError("a rank and a size are whole numbers")
    if not 0 <= int(texts[1]) < int(texts[2]) <= MAX_GANG:
        raise ValueError(f"a rank below a size of at most {MAX_GANG} is expected")
    return texts


#: What a category may say besides its name, mode and maximum.
_LATER_FACTS: Final = {"copies_stragglers", "max_wall_us", "straggler_multiple"}


def _check_category(value: Any, buffers: list[Any]) -> dict[str, Any]:
    """Check the name of a category, its mode, and the most that one of its tasks may use."""
    names = {"name", "mode", "max_nbytes"}
    if type(value) is not dict or value.keys() - _LATER_FACTS != names:
        raise TypeError("a map of name, mode and max_nbytes is expected")
    if type(value.get("copies_stragglers", False)) is not bool:
        raise TypeError("copies_stragglers is true or false")
    multiple = value.get("straggler_multiple", 1.0)
    if type(multiple) is not float or not 1.0 <= multiple <= MAX_MULTIPLE:
        raise ValueError(f"straggler_multiple is 1 to {MAX_MULTIPLE:g}")
    if not 0 < len(CHECKS["Text"](value["name"], buffers)) <= MAX_TAG_CHARS:
        raise ValueError(f"a name of 1 to {MAX_TAG_CHARS} characters is expected")
    if value["mode"] not in MODES:
        raise ValueError(f"mode is one of {', '.join(MODES)}")
    _check_size(value["max_nbytes"], buffers)
    _check_size(value.get("max_wall_us", 0), buffers)
    return value


def _check_cron(value: Any, buffers: list[Any]) -> dict[str, Any]:
    """Check the times of a recurring job; whether they have a next one is not known here."""
    if type(value) is not dict or value.keys() != _CRON.keys():
        raise TypeError(f"a map of {', '.join(_CRON)} is expected")
    for name, check in _CRON.items():
        CHECKS[check](value[name], buffers)
    if value["overlap"] not in OVERLAPS or value["missed"] not in MISSED:
        raise ValueError(f"overlap is one of {OVERLAPS}, missed one of {MISSED}")
    return value


#: {what the times of a recurring job are: its check}. `since_ms`: times up to this one, ms since
#: 1970, have been dealt with. `until_ms`: there is none later; 0 = no end.
_CRON: Final = {
    "expression": "Text",
    "zone": "Text",
    "since_ms": "Number",
    "until_ms": "Number",
    "overlap": "Text",
    "missed": "Text",
}


def _check_span(value: Any, buffers: list[Any]) -> list[str]:
    tags: list[str] = CHECKS["Texts"](value, buffers)
    if len(tags) > MAX_SPAN_TAGS or not all(0 < len(tag) <= MAX_TAG_CHARS for tag in tags):
        raise ValueError(
            f"at most {MAX_SPAN_TAGS} tags of 1 to {MAX_TAG_CHARS} characters are expected"
        )
    return tags


def _check_trace(value: Any, buffers: list[Any]) -> list[str]:
    """Check names and values in turn."""
    texts: list[str] = CHECKS["Texts"](value, buffers)
    if len(texts) % 2 or sum(map(len, texts)) > MAX_TRACE_CHARS:
        raise ValueError(f"names and values of at most {MAX_TRACE_CHARS} characters are expected")
    return texts


def _check_meta(value: Any, _buffers: list[Any]) -> Any:
    """Check plain data; return a copy, which does not change on its way."""
    return _plain(value, 0, [MAX_META_NBYTES])


def _plain(value: Any, depth: int, left: list[int]) -> Any:
    kind = type(value)
    left[0] -= 64 + (len(value.encode()) if kind is str else 0)
    if left[0] < 0 or depth > MAX_FACTS_DEPTH:
        raise ValueError(
            f"at most {MAX_META_NBYTES} bytes are expected, where each item counts 64 more, "
            f"in at most {MAX_FACTS_DEPTH} lists and dicts within each other"
        )
    if kind is list:
        return [_plain(item, depth + 1, left) for item in value]
    if kind is dict and set(map(type, value)) <= {str}:
        return {_plain(k, depth, left): _plain(x, depth + 1, left) for k, x in value.items()}
    if kind in (str, bool, float, type(None)) or (kind is int and abs(value) <= MAX_NUMBER):
        return value
    raise TypeError(
        "texts, numbers, True, False, None, lists and dicts with texts as keys are expected, not "
        f"{kind.__name__}"
    )


# -- the table -------------------------------------------------------------------------------------
class _Given:
    """What was given of the options; the others are attributes of the class, their defaults."""

    def __init__(self, **given: Any) -> None:
        self.__dict__.update((name, value) for name, value in given.items() if value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Given) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # lists may be among them; see `as_key`

    def __repr__(self) -> str:
        return f"TaskOptions({', '.join(f'{name}={x!r}' for name, x in vars(self).items())})"


@dataclass_transform(kw_only_default=True, field_specifiers=(option,))
def _table(cls: type[_T]) -> type[_T]:
    for name in cls.__annotations__:
        OPTIONS[name] = declared = vars(cls)[name]
        setattr(cls, name, declared.default)
    return cls


#: {name: the option}
OPTIONS: Final[dict[str, Option]] = {}


@_table
class TaskOptions(_Given):
    """The options of a task, as they are sent, which does not change any more."""

    #: -`MAX_PRIORITY`..`MAX_PRIORITY`, higher runs earlier
    priority: int = option(_check_priority, default=0, keyword="priority")
    #: how often it is run again after its own exception
    retries: int = option(CHECKS["Number"], default=0, keyword="retries")
    #: before a retry: the first, factor, longest (seconds), jitter; see `Retries.as_pauses`
    pauses: Sequence[float] = option(_check_pauses, default=())
    #: how long an attempt may run, microseconds; 0 = for ever
    timeout_us: int = option(_check_size, default=0, keyword="timeout", column="timeouts_us")
    #: names, hosts or addresses; empty = any
    workers: Sequence[str] = option(CHECKS["Texts"], default=(), keyword="workers")
    #: prefer `workers`, but run it on others if these cannot
    allow_other_workers: bool = option(CHECKS["Flag"], default=False, keyword="allow_other_workers")
    #: what it occupies while it runs; see `protocol/amounts.py`
    resources: Mapping[str, float] = option(
        CHECKS["Amounts"], default={}, keyword=("resources", CORES, MEMORY)
    )
    #: the attempt on whose behalf a task submits it; 0 = no task submits it
    attempt: int = option(CHECKS["Number"], default=0)
    #: the key of the actor that submits it, which that attempt has made
    actor: str = option(CHECKS["Text"], default="")
    #: data that its client puts at a worker, and keeps no longer then
    scattered: bool = option(CHECKS["Flag"], default=False)
    #: tags of the spans in which it was submitted, outermost first
    span: Sequence[str] = option(_check_span, default=(), is_shown=True)
    #: plain data that says what the task is for; nothing depends on it
    meta: Any = option(_check_meta, default=None, keyword="meta", is_shown=True)
    #: the client has the result: run it only if others need it
    delivered: bool = option(CHECKS["Flag"], default=False)
    #: it has made an actor: it fails if no worker has that, and never runs
    made: bool = option(CHECKS["Flag"], default=False)
    #: (state, key) of others that are to have ended so before it runs; without their values
    conditions: Sequence[Sequence[str]] = option(
        _check_conditions, default=(), keyword="after", must_understand=True
    )
    #: it runs no earlier; ms since 1970, 0 = at once
    start_ms: int = option(
        _check_size, default=0, keyword=("start_at", "start_after"), must_understand=True
    )
    #: it is cancelled if it has not begun by then; ms since 1970, 0 = never
    begin_by_ms: int = option(_check_size, default=0, keyword="ttl", must_understand=True)
    #: it is cancelled if it has not ended by then; ms since 1970, 0 = never
    end_by_ms: int = option(_check_size, default=0, keyword="deadline", must_understand=True)
    #: it fails when no connected worker could run it for so long, ms; 0 = it waits for one
    no_worker_ms: int = option(
        _check_size, default=0, keyword="no_worker_timeout", must_understand=True
    )
    #: it is recorded, and runs to its end without its client
    detached: bool = option(CHECKS["Flag"], default=False, keyword="detached", must_understand=True)
    #: it never runs itself: at each of these times a task like it does; see `_CRON`
    cron: Mapping[str, Any] = option(
        _check_cron,
        default={},
        keyword=("cron", "timezone", "until", "overlap", "missed"),
        must_understand=True,
    )
    #: the name of its queue: it does not begin while that is paused; "" = it is in none
    job_queue: str = option(_check_queue, default="", keyword="queue", must_understand=True)
    #: the key of the recurring job that it is a run of
    run_of: str = option(CHECKS["Text"], default="")
    #: it never runs so: for each number of these parts a call like it does; see `ArrayRows`
    array: Sequence[Sequence[int]] = option(check_parts, default=(), must_understand=True)
    #: the key of the array that it is a row of
    row_of: str = option(CHECKS["Text"], default="")
    #: its value is an index of its inputs: tasks that read it read parts of these
    part_index: bool = option(CHECKS["Flag"], default=False, must_understand=True)
    #: the tasks with which it begins: the name of these, its rank, and how many there are
    gang: Sequence[str] = option(_check_gang, default=(), must_understand=True)
    #: made with each assignment of one of a gang: its name, the rank, and where each of them runs
    gang_seats: Sequence[str] = option(CHECKS["Texts"], default=(), column="gangs")
    #: tasks of which it is one: their name, how its amounts are chosen, and the most memory, 0 =
    #: that of its worker; `max_wall_us`, if its `timeout_us` is that of the category
    category: Mapping[str, Any] = option(
        _check_category, default={}, keyword="category", must_understand=True
    )
    #: made with each assignment of one of a category: the bytes that it may use
    allotted_nbytes: int = option(_check_size, default=0, column="allotted_nbytes")
    #: made as that: the cores among its `resources`, which the category has chosen; 0 = it has not
    allotted_cores: int = option(_check_size, default=0)
    #: the context of a trace in which it was submitted; see `protocol/values/tracing.py`
    trace_context: Sequence[str] = option(_check_trace, default=(), column="traces")

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> TaskOptions:
        """Return the options of a record that came."""
        amounts = record.get("resources", ())
        if not _MARKS.keys().isdisjoint(amounts):
            amounts = {name: amount for name, amount in amounts.items() if name not in _MARKS}
            record = {**record, "resources": amounts}
        return cls(**record)

    def changed(self, **changes: Any) -> TaskOptions:
        """Return the same options, but for these."""
        return TaskOptions(**{**vars(self), **changes})

    def for_attempt(self, attempt: int, actor: str = "") -> TaskOptions:
        """Return the same options of a submission on behalf of an attempt, or of its actor."""
        return self.changed(attempt=attempt, actor=actor)

    def behind(self, outer: TaskOptions) -> TaskOptions:
        """Return the same options of a submission by a task with these: it is in their spans."""
        tags = [*outer.span, *self.span][:MAX_SPAN_TAGS]
        return self.changed(span=tags) if outer.span else self

    @property
    def caller(self) -> tuple[int, str]:
        """The attempt and the actor on whose behalf a task submits; (0, "") outside of tasks."""
        return self.attempt, self.actor

    @property
    def takes_thread(self) -> bool:
        """False for a value that is brought: no thread of its worker computes it."""
        return not (self.scattered or self.part_index)

    @property
    def is_deferred(self) -> bool:
        """True for a task that waits for more than its inputs."""
        return bool(self.conditions or self.start_ms or self.cron or self.array)

    @property
    def may_be_held(self) -> bool:
        """True for a task that a feature may hold back each time that it could be queued."""
        return bool(self.job_queue)

    @property
    def held_in(self) -> tuple[object, ...]:
        """What names the tasks with which a feature holds it, beside what it asks for; () = none.

        Those of a gang begin together, those of a category when their memory is chosen.
        """
        if self.gang:
            return self.gang[0], int(self.gang[2])
        if self.category and not self.allotted_nbytes:
            return "category", self.category["name"], *sorted(self.workers)
        return ()

    @property
    def keeps_inputs(self) -> bool:
        """True for a value whose readers read its inputs as well."""
        return self.part_index

    @property
    def for_workers(self) -> list[str]:
        """The names of those that workers need to know."""
        return [name for name in vars(self) if name in COLUMNS]

    @property
    def shown(self) -> dict[str, Any]:
        """Those that are shown with attempts."""
        return {name: value for name, value in vars(self).items() if OPTIONS[name].is_shown}

    def as_record(self) -> dict[str, Any]:
        """Return what is sent."""
        record = dict(vars(self))
        if _MARKS:
            marks = {mark: 1 for mark, name in _MARKS.items() if name in record}
            if marks:
                record["resources"] = {**marks, **self.resources}
        return record

    def as_key(self) -> str:
        """Return what is equal for equal options that were given in the same order."""
        return repr(vars(self))


NO_OPTIONS: Final = TaskOptions()

#: The keywords of `submit` and `map`.
KEYWORDS: Final = tuple(sorted(word for one in OPTIONS.values() for word in one.keywords))
#: {name: the column of `AssignTasks`}
COLUMNS: Final = {name: one.column for name, one in OPTIONS.items() if one.column}
#: {mark: the option}
_MARKS: Final = {MARK + name: name for name, one in OPTIONS.items() if one.must_understand}


def unknown_options(record: Mapping[str, Any]) -> list[str]:
    """Return the names of options of a record that must be understood, and are not known here."""
    amounts = record.get("resources", ())
    return [n.removeprefix(MARK) for n in amounts if n.startswith(MARK) and n not in _MARKS]


def _check_options(value: Any, buffers: list[Any]) -> Options:
    column: Options = as_column(value)
    if not set(map(type, column)) <= {dict}:
        raise TypeError("maps of options are expected")
    for options in column:
        if not set(map(type, options)) <= {str}:
            raise TypeError("a map of options has text keys")
        for name in list(options):
            if name not in OPTIONS:
                del options[name]
                continue
            try:
                OPTIONS[name].check(options[name], buffers)
            except (TypeError, ValueError) as error:
                raise TypeError(f"option {name}: {error}") from None
    return column


CHECKS["Options"] = _check_options
