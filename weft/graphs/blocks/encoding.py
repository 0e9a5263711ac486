"""Encodes tasks as bytes before any runs, so that objects that cannot be pickled are named early.

It owns the payload of each task, and the parts that tasks have in common, which are sent apart.

- The payload of a task is the pickle of `(func, args, refs)`. References to other tasks are their
  numbers. Functions are numbers too: they are pickled once per graph and sent once per worker, also
  those inside of arguments, if they cannot be imported (`_CallPickler`).
- Large literals are shared by all tasks that refer to the same object, and go through shared
  memory, when the first worker needs them. They appear in the graph as tasks that have finished.
  That holds for arguments, for items of containers that hold references, and for large buffers of
  any other object in a payload. As on threads, tasks of one worker then see the same object: tasks
  must not change an argument that many of them share.
"""

from __future__ import annotations

import copyreg
import io
import pickle
import types
from collections.abc import Callable
from typing import Any

from ...protocol.errors import SerializationError
from ...protocol.values.functions import dumps_function, function_name
from ...protocol.values.pickling import (
    PROTOCOL,
    cloudpickle_dumps,
    find_unpicklable,
    is_importable,
    needs_cloudpickle,
    type_name,
)
from ..core.reading import Graph
from ..core.tasks import CallOf, ContainerOf, ListOf, Literal, ValuesOf
from . import references
from .core.tasks import DONE, READY, WAITING, BlockTask
from .packing import LARGE_NBYTES

_dumps = pickle.dumps

#: A call with arguments of only these types is pickled later, together with others: it can be.
_PLAIN_TYPES = frozenset({bool, complex, float, int, type(None)})


class Unpacked:
    """The place of a literal's export until a worker needs it."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class Encoded:
    """The encoded graph, as `state.BlockRun` and the driver use it.

    Attributes:
        tasks: by number; literals are behind the tasks of the graph.
        ready: those without dependencies, as a stack.
        functions: blobs by number. The numbers of groups begin with those of functions.
        n_groups: one more than the highest number of a group.
    """

    def __init__(self, graph: Graph) -> None:
        """Encode all tasks of a graph.

        Raises:
            SerializationError: an object cannot be pickled; the text names task and path.
        """
        self.tasks: list[BlockTask] = _numbered(graph)
        self.ready: list[BlockTask] = list(graph.sources)  # type: ignore[arg-type]
        self.functions: dict[int, bytes] = {}
        #: {number: hash of the function's content}
        self.function_ids: dict[int, bytes] = {}
        #: {number of a task: functions that its payload refers to, besides the one it calls}
        self.inner_functions: dict[int, list[int]] = {}
        self.n_groups = 0
        #: {id(function or class): number}. The graph keeps them alive, or `_kept` does.
        self._numbers: dict[int, int] = {}
        #: {type of a callable: whether its objects pickle as names}
        self._is_named: dict[type, bool] = {types.FunctionType: True, type: True}
        #: {label: group} of callables that travel in the payloads.
        self.labels: dict[str, int] = {}
        #: {id of an object or (address, bytes) of a buffer: its literal; None = it is not large}
        self._literals: dict[Any, BlockTask | None] = {}
        self._kept: list[Any] = []
        #: Numbers of functions that the payload at hand refers to.
        self._met: list[int] = []
        self._encode_all()

    def _encode_all(self) -> None:
        """Fill in payloads. Most of the cost of encoding small tasks is in this loop."""
        numbers = self._numbers
        buffers: list[memoryview] = []

        def take(buffer: pickle.PickleBuffer) -> bool:
            if _is_small(buffer):
                return True
            buffers.append(buffer.raw())
            return False

        for task in list(self.tasks):
            func: Any = task.func
            number = numbers.get(id(func))
            if number is None:
                number = self._number(task, func)
            if number >= 0:
                func = task.group = number
            else:
                task.group = self._group(func)
            refs = task.refs
            if refs:
                args = task.args.copy()
                wanted: list[tuple[int, int]] = []
                containers: list[Any] = []
                for i, ref in refs:
                    args[i] = None  # it holds the reference as written: a key, a list of keys
                    if ref.__class__ is BlockTask:
                        wanted.append((i, ref.number))
                    else:
                        containers.append((ref, wanted, i))
                call: Any = (func, args, wanted)
                if containers:
                    call = (func, args, wanted, _flattened(containers))
            else:
                call = (func, task.args)
            if number >= 0 and len(call) < 4:
                for arg in call[1]:
                    if arg.__class__ not in _PLAIN_TYPES:
                        break
                else:
                    task.payload = call
                    continue
            try:
                data = _dumps(call, PROTOCOL, buffer_callback=take)
                if needs_cloudpickle(data):
                    data = self._by_value(task, call, buffers, take)
            except Exception:
                data = self._by_value(task, call, buffers, take)
            if buffers or len(data) >= LARGE_NBYTES:
                self._encode_large(task, call, buffers, take)
            else:
                task.payload = data

    # --- Functions --------------------------------------------------------------------------------

    def _number(self, task: BlockTask, func: Any) -> int:
        """Return the number of a function met for the first time; -1 if it goes into payloads."""
        cls = type(func)
        is_named = self._is_named.get(cls)
        if is_named is None:
            is_named = self._is_named[cls] = _pickles_as_name(func)
        if not is_named:
            return -1
        try:
            return self._add_function(func)
        except SerializationError as exc:
            where = f"{exc.where} of task {_shown(task.key)}"
            raise SerializationError(where, exc.type_name, exc.text) from exc

    def _add_function(self, func: Any) -> int:
        ident, blob = dumps_function(func)
        number = self._numbers[id(func)] = self.n_groups
        self.n_groups += 1
        self.functions[number] = blob
        self.function_ids[number] = ident
        self._kept.append(func)
        return number

    def _group(self, func: Any) -> int:
        """Return the group of a callable that is not a plain function, by the function it calls."""
        inner = getattr(func, "func", func)
        label = f"{type(func).__name__} {function_name(inner)}"
        group = self.labels.get(label)
        if group is None:
            group = self.labels[label] = self.n_groups
            self.n_groups += 1
        return group

    def function_reference(self, func: Any) -> tuple[Callable[..., Any], tuple[int]]:
        """Return the reference to a function that cannot be imported, for use inside a payload."""
        number = self._numbers.get(id(func))
        if number is None:
            number = self._add_function(func)
        self._met.append(number)
        return references.function, (number,)

    # --- Payloads that plain pickle cannot make, and large ones -----------------------------------

    def _by_value(
        self,
        task: BlockTask,
        call: Any,
        buffers: list[memoryview],
        take: Callable[[pickle.PickleBuffer], bool],
    ) -> bytes:
        """Pickle by value arguments that plain pickle refuses, or names although unimportable."""
        buffers.clear()
        self._met = []
        try:
            try:
                file = io.BytesIO()
                _CallPickler(self, file, take).dump(call)
                data = file.getvalue()
                if not needs_cloudpickle(data):
                    if self._met:
                        self.inner_functions[task.number] = self._met
                    return data
            except Exception:  # cloudpickle can pickle more kinds of objects, and decides
                buffers.clear()
            buffers.clear()
            return cloudpickle_dumps(call, take)
        except MemoryError:
            raise
        except Exception as exc:
            raise _explained(task, exc) from exc

    def _encode_large(
        self,
        task: BlockTask,
        call: Any,
        buffers: list[memoryview],
        take: Callable[[pickle.PickleBuffer], bool],
    ) -> None:
        """Take large objects and buffers out of a payload."""
        buffers.clear()
        func, args, *rest = call
        wanted = rest[0] if rest else []
        args = args.copy()
        self._take_out(task, args, wanted)
        call = (func, args, wanted) if wanted else (func, args)
        if len(rest) == 2:
            nodes: list[references.Node] = rest[1]
            for _, _, items, refs in nodes:
                self._take_out(task, items, refs)
            call = (func, args, wanted, nodes)
        try:
            data = _dumps(call, PROTOCOL, buffer_callback=take)
            if needs_cloudpickle(data):
                data = self._by_value(task, call, buffers, take)
        except Exception:
            data = self._by_value(task, call, buffers, take)
        task.payload = data
        # Views of them, which keep buffers that were made just now, and so their addresses, in use.
        views = buffers.copy()
        buffers.clear()
        task.buffers = [
            self._use(task, (*_place_of(view), view.readonly), pickle.PickleBuffer(view)).number
            for view in views
        ]

    def _take_out(self, task: BlockTask, items: list[Any], refs: list[tuple[int, int]]) -> None:
        """Replace large objects among items that are no references."""
        for i, item in enumerate(items):
            if item is not None and (literal := self._literal(task, item)) is not None:
                items[i] = None
                refs.append((i, literal.number))

    def _literal(self, task: BlockTask, item: Any) -> BlockTask | None:
        """Return the literal of an object if it is large, and note that `task` needs it.

        Its buffers do not count, because they become literals of their own.
        """
        if id(item) in self._literals:
            literal = self._literals[id(item)]
            return literal and self._use(task, id(item), item)
        try:
            nbytes = len(_dumps(item, PROTOCOL, buffer_callback=_is_small))
        except Exception:  # plain pickle refuses it: it stays in its place
            nbytes = 0
        self._kept.append(item)
        if nbytes < LARGE_NBYTES:
            self._literals[id(item)] = None
            return None
        return self._use(task, id(item), item)

    def _use(self, task: BlockTask, name: Any, value: Any) -> BlockTask:
        """Return the literal of a value, and note that `task` needs it."""
        literal = self._literals.get(name)
        if literal is None:
            literal = self._literals[name] = BlockTask(None)
            literal.number = len(self.tasks)
            literal.dependencies = []
            literal.n_waiting = literal.n_unassigned = literal.n_open_uses = literal.is_output = 0
            literal.begin()
            literal.exported = Unpacked(value)
            literal.state = DONE
            self.tasks.append(literal)
        literal.n_uses += 1
        literal.n_open_uses += 1
        task.dependencies.append(literal)
        return literal


class _CallPickler(pickle.Pickler):
    """Pickles functions and classes that cannot be imported as numbers of functions."""

    def __init__(self, encoded: Encoded, file: io.BytesIO, take: Callable[..., bool]) -> None:
        super().__init__(file, PROTOCOL, buffer_callback=take)
        self._encoded = encoded

    def reducer_override(self, obj: Any) -> Any:
        cls = type(obj)
        if (cls is types.FunctionType or issubclass(cls, type)) and not is_importable(obj):
            return self._encoded.function_reference(obj)
        return NotImplemented


def _flattened(containers: list[tuple[Any, list[tuple[int, int]], int]]) -> list[references.Node]:
    """Return the containers of a call, and those inside them, as `references.fill` reads them.

    The list is flat, so containers may be nested to any depth.

    Args:
        containers: (container, references of its parent, its place there). Emptied, and the
            references are filled in.
    """
    nodes: list[references.Node] = []
    while containers:
        container, outer_refs, place = containers.pop()
        outer_refs.append((place, ~len(nodes)))
        inner: Any
        if isinstance(container, ValuesOf):
            kind, make = references.DICT, [key for key, _ in container.refs]
            inner = [(i, ref) for i, (_, ref) in enumerate(container.refs)]
            items: list[Any] = [None] * len(inner)
        else:
            kind, make = _how_made(container)
            inner = container.refs
            items = container.template.copy()
        refs: list[tuple[int, int]] = []
        for i, ref in inner:
            items[i] = None
            if isinstance(ref, BlockTask):
                refs.append((i, ref.number))
            elif ref.__class__ is Literal:
                items[i] = ref.value
            else:
                containers.append((ref, refs, i))
        nodes.append((kind, make, items, refs))
    return nodes


def _how_made(container: ListOf) -> tuple[int, Any]:
    if isinstance(container, CallOf):
        return references.CALL, container.func
    if isinstance(container, ContainerOf):
        return references.CONTAINER, container.make
    return references.LIST, None


def _numbered(graph: Graph) -> list[BlockTask]:
    """Return the tasks of a graph, by number, before `Encoded` fills in their payloads."""
    tasks: list[Any] = list(graph.walk())
    for number, task in enumerate(tasks):
        task.number = number
        n_uses = task.n_open_uses = len(task.dependents)
        task.is_output = task.n_uses
        task.n_uses += n_uses
        n_waiting = task.n_unassigned = task.n_waiting
        task.state = WAITING if n_waiting else READY
        task.begin()
    return tasks


def _pickles_as_name(func: Any) -> bool:
    if isinstance(func, (types.FunctionType, types.BuiltinFunctionType, type)):
        owner = getattr(func, "__self__", None)
        return owner is None or isinstance(owner, types.ModuleType)
    try:
        registered = copyreg.dispatch_table.get(type(func))
        return isinstance(registered(func) if registered else func.__reduce_ex__(PROTOCOL), str)
    except Exception:  # user code; pickling it will raise the error
        return False


def _is_small(buffer: pickle.PickleBuffer) -> bool:
    """Return whether a buffer is to stay in the pickle."""
    try:
        return buffer.raw().nbytes < LARGE_NBYTES
    except BufferError:  # not contiguous: pickle copies it
        return True


def _place_of(view: memoryview) -> tuple[int, int]:
    """Return address and length of a buffer."""
    import ctypes

    fields = (ctypes.c_ssize_t * 16)()  # a Py_buffer has 10 of them, the first one is the address
    api = ctypes.pythonapi
    api.PyObject_GetBuffer(ctypes.py_object(view), fields, 0)
    address = fields[0]
    api.PyBuffer_Release(fields)
    return address, view.nbytes


def _shown(key: object) -> str:
    return repr(key)


def _explained(task: BlockTask, exc: Exception) -> SerializationError:
    """Return an error that names the task and the path to the object that cannot be pickled."""
    args = task.args.copy()
    for i, _ in task.refs:
        args[i] = None
    wanted: list[tuple[int, int]] = []
    containers: list[Any] = [(ref, wanted, i) for i, ref in task.refs if not _is_task(ref)]
    written: list[Any] = _written(_flattened(containers))
    for i, number in wanted:
        args[i] = written[~number]
    candidates: list[tuple[str, object]] = [(function_name(task.func), task.func)]
    candidates += [(f"args[{i}]", arg) for i, arg in enumerate(args)]
    text = str(exc) or type(exc).__name__
    path, culprit = find_unpicklable(candidates)
    return SerializationError(f"{path} of task {_shown(task.key)}", type_name(culprit), text)


def _is_task(ref: object) -> bool:
    return isinstance(ref, BlockTask)


def _written(nodes: list[references.Node]) -> list[Any]:
    """Return containers about as the user has written them, without the values of references."""
    written: list[Any] = [None] * len(nodes)
    for place in reversed(range(len(nodes))):
        kind, make, items, refs = nodes[place]
        for i, number in refs:
            if number < 0:
                items[i] = written[~number]
        if kind == references.CALL:
            written[place] = tuple(items) if hasattr(make, "_fields") else (make, *items)
        elif kind == references.DICT:
            written[place] = dict(zip(make, items, strict=True))
        else:
            written[place] = items
    return written
