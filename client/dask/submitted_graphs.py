"""Runs graphs on a cluster: the tasks are submitted in columns, with keys in the place of inputs.

This waits for no result. What only tasks of the graph read is released when the last of them was
submitted; from then on the scheduler keeps the result for as long as it is needed.

**Names.** A task has the key of its graph. If there is a hash of content in the key, as dask makes
them, the key says what its value is: a task whose key this client holds is not submitted, and
neither is what only it needs. A name that was chosen by hand says nothing about its content, and
other clients may use it for other calls. So a hash of the call becomes part of it, except for a
task that is requested and that no other one reads: if another client has another call of that name,
the scheduler refuses it, and nothing was computed from the wrong data.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from ...graphs.core.reading import Graph, read_graph
from ...graphs.core.state import finish
from ...graphs.core.tasks import CallOf, GraphTask, HasValue, ListOf, Literal, ValuesOf
from ...graphs.dask_graphs import node_types
from ...graphs.options import checked_order, priorities_of
from ...protocol.errors import MissingKey, SerializationError
from ...protocol.host.collector import paused_collector, resumed_collector
from ...protocol.values.digests import digest_of
from ...protocol.values.exceptions import add_note
from ...protocol.values.parts import index_of_parts
from ...protocol.values.serialize import dumps_placed, futures_met, reduce_future
from ...protocol.wire.keys import names_content, prefix_of, text_of
from ...protocol.wire.message import MAX_DEPENDENCIES
from ...protocol.wire.messages import INDEX_FUNCTION, NO_HASH
from ...protocol.wire.options import KEYWORDS
from ...protocol.wire.payload import Blob, Payload, blob_nbytes
from ..calls.annotations import (
    AnnotatedOptions,
    active_annotations,
    check_options,
    read_annotated,
)
from ..calls.calling import admit
from ..calls.encoding import Encoder, too_many_dependencies
from ..calls.foreign_futures import borrow
from ..calls.shared_arguments import SHARED_NBYTES, Sharing
from ..core.submitting import MAX_NBYTES
from ..core.tasks import FAILED, FunctionRecord, FutureState, TaskColumns, TaskRecord
from ..future import Future, join_dask
from .chains import with_chains
from .rechunks import with_read_pieces
from .shuffles import graph_with_parts, in_order

if TYPE_CHECKING:
    from ..shell.engine import Engine

_MAX_KEY_CHARS: Final = 80  #: of a key, that become part of a name with a hash
#: Tasks of one part: the first is small, so that the first tasks start early.
_FIRST_ROWS: Final = 256
_MAX_ROWS: Final = 2048
_NOT_HELD: Final = (
    "weft: this client has no future of that key either. If it is part of a persisted collection, "
    "its futures were released, or belong to another client: keep that collection, or persist it "
    "with this client"
)


def run_submitted(client: Any, dsk: Any, read: Callable[..., Graph]) -> Any:
    """Submit a graph for one of the functions that run graphs; return futures, in tuples."""
    mapping, annotations = read_annotated(dsk)
    options = AnnotatedOptions({}, active_annotations(), annotations)
    submission = _Submission(client, options, keeps_names=False)

    def read_and_submit() -> Any:
        graph = read(mapping, SubmittedTask, submission.find)
        return submission.submit(graph, graph.results)

    with paused_collector():
        return read_and_submit()


def submit_graph(
    client: Any,
    dsk: Any,
    keys: Any,
    options: Mapping[str, Any],
    *,
    as_futures: bool = False,
    keeps_names: bool = True,
) -> Any:
    """Submit the tasks that are needed for `keys`.

    Args:
        client: the one that submits.
        dsk: a graph, in any form.
        keys: a key, or a list of keys and of such lists.
        options: for each task, beside its annotations; `order` is that of the whole graph.
        as_futures: make a task of each literal that is requested.
        keeps_names: leave names that were chosen by hand as they are, where that is safe.

    Returns:
        Futures, and values of literals, nested like `keys`.

    Raises:
        UnknownOption: an option or an annotation looks misspelt.
        NotSupported: an annotation is one that weft cannot honour.
        ConfigError: `order` is none.
        GraphError: see `read_graph`.
        SerializationError: a task cannot be pickled.
    """
    join_dask()
    check_options(options)
    given = {name: options.get(name) for name in KEYWORDS}
    mapping, annotations = read_annotated(dsk, graph_with_parts)
    wanted = client._running().table.states
    mapping = with_chains(with_read_pieces(mapping), keys, wanted, annotations)
    of_tasks = AnnotatedOptions(given, active_annotations(), annotations)
    order = checked_order(options.get("order"))
    submission = _Submission(client, of_tasks, keeps_names=keeps_names)

    def read_and_submit() -> Any:
        graph = read_graph(
            mapping,
            keys,
            task_class=SubmittedTask,
            node_types=node_types(),
            outside=submission.find,
        )
        if order is not None:
            graph.sort(priorities_of(order, mapping))
        if as_futures:
            add_literals(graph, keys)
        return submission.submit(graph, lambda: _as_lists(graph.outputs))

    try:
        # When the collector goes on, the graph is gone: visiting it would take long.
        with paused_collector():
            return read_and_submit()
    except MissingKey as error:
        if mapping:
            add_note(error, _NOT_HELD)
        raise


# --- Tasks ----------------------------------------------------------------------------------------


class SubmittedTask(GraphTask):
    """A task whose value is its future; a reader of its pickle gets that future's result."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return Literal, (self.value,)


class _TaskResult:
    """The value of a submitted task: in the pickle of a call, the result of its key."""

    __slots__ = ("future", "key", "state")

    def __init__(self, key: str) -> None:
        self.key = key
        #: None until its part of the graph is submitted.
        self.state: FutureState | None = None
        #: Made for results that are requested.
        self.future: Future | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return reduce_future(self.key)


class _NodeCall:
    """Calls a node of dask, on a worker, with the values that it needs."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __reduce__(self) -> tuple[Any, ...]:
        return _NodeCall, (self.__name__,)

    def __call__(self, node: Any, keys: list[Any], values: list[Any]) -> Any:
        return node(dict(zip(keys, values, strict=True)))


class _FusedCall:
    """Calls the function of dask that runs several tasks as one, under the name of their key."""

    def __init__(self, name: str, func: Callable[..., Any]) -> None:
        self.__name__ = name
        self._func = func

    def __reduce__(self) -> tuple[Any, ...]:
        return _FusedCall, (self.__name__, self._func)

    def __call__(self, *args: Any) -> Any:
        return self._func(*args)


def call_filled(func: Callable[..., Any], args: list[Any], refs: list[tuple[int, HasValue]]) -> Any:
    """Call `func(*args)`, on a worker, with the values of `refs` in their places."""
    for i, ref in refs:
        args[i] = ref.value
    return func(*args)


def return_it(value: Any) -> Any:
    """Return the argument: the task of a literal."""
    return value


def add_literals(graph: Graph, keys: Any) -> None:
    """Put tasks in the places of the literals among the outputs of a graph."""
    made: dict[Any, GraphTask] = {}
    graph.outputs = _with_tasks(graph.outputs, keys, made)
    graph.tasks += made.values()
    graph.sources[:0] = made.values()


def _with_tasks(output: Any, key: Any, made: dict[Any, GraphTask]) -> Any:
    """Return outputs with tasks, which are added to `made`, in the places of literals."""
    if output.__class__ is list:
        return [_with_tasks(each, k, made) for each, k in zip(output, key, strict=True)]
    if not isinstance(output, Literal) or isinstance(output.value, Future):
        return output
    task = made.get(key)
    if task is None:
        task = made[key] = SubmittedTask(key)
        task.func, task.args = return_it, [output.value]
        task.refs, task.dependencies, task.n_waiting, task.n_uses = [], [], 0, 1
    return task


def _as_lists(outputs: Any) -> Any:
    if outputs.__class__ is list:
        return [_as_lists(output) for output in outputs]
    return outputs.value


# --- Submitting -----------------------------------------------------------------------------------


class _GraphPart:
    """Tasks that are encoded and not submitted yet."""

    def __init__(self, sharing: Sharing) -> None:
        #: For each task: result, key of the graph, function's place, arguments, keys of inputs,
        #: hash of the call.
        self.rows: list[tuple[_TaskResult, Any, int, Blob, list[str], bytes]] = []
        #: Failed states whose keys tasks take over.
        self.replaced: list[FutureState] = []
        self.functions: dict[FunctionRecord, int] = {}  #: {function: its place}
        #: {id of a function object: function and place}; the graph keeps the objects alive
        self.known: dict[int, tuple[FunctionRecord, int]] = {}
        self.sharing = sharing  #: takes large arguments out of rows
        self.indexes: set[int] = set()  #: rows that are indexes of parts
        self.nbytes = 0


class _Submission:
    """One graph on its way to the cluster."""

    def __init__(self, client: Any, options: AnnotatedOptions, *, keeps_names: bool) -> None:
        self._engine: Engine = client._running()
        # A key of dask for what is read from a file says which file it is, not what is in it.
        self._engine.settle_releases()
        self._encoder: Encoder = client._encoder
        self._options = options
        self._keeps_names = keeps_names
        self._states = self._engine.table.states
        #: {key of the graph that names its content: its text}, until the task is encoded
        self._names: dict[Any, str] = {}
        #: {first part of keys: whether it names content}
        self._known: dict[str, bool] = {}
        self._node_calls: dict[str, _NodeCall] = {}
        #: dask's function that runs several tasks as one: it says nothing about them, but their key
        #: does. None = dask is not loaded, or has none.
        self._fused: Any = getattr(sys.modules.get("dask._task_spec"), "_execute_subgraph", None)
        self._fused_calls: dict[str, _FusedCall] = {}
        self._index: Any = FunctionRecord(INDEX_FUNCTION, b"", "index_of_parts")
        self._part = self._new_part()
        self._n_rows = _FIRST_ROWS
        #: Results that no further task of the graph reads.
        self._dropped: list[Any] = []
        self._ranks: dict[Any, int] | None = None

    def find(self, key: Any, is_in_graph: bool) -> HasValue | None:
        """Return a reference to the future of a key; None if the client has none.

        dask replaces futures by references to their keys when it optimizes a graph. A task that is
        in the graph as well is run again if it has failed, or if its name was chosen by hand.
        """
        is_content = self._names_content(key)
        if is_in_graph and not is_content:
            return None
        try:
            name = text_of(key)
        except (TypeError, ValueError):
            return None
        state = self._states.get(name)
        if (
            state is None
            or (is_in_graph and state.status in FAILED)
            or not self._engine.table.share(state)
        ):
            if is_in_graph:
                self._names[key] = name
            return None
        return Literal(Future(self._engine, state))

    def _names_content(self, key: Any) -> bool:
        first = key[0] if key.__class__ is tuple and key else key
        if first.__class__ is not str:
            return False
        known = self._known.get(first)
        if known is None:
            known = self._known[first] = names_content(first)
        return known

    def submit(self, graph: Graph, outputs: Callable[[], Any]) -> Any:
        """Submit all tasks of a graph, and return what `outputs` returns then, with futures."""
        try:
            self._ranks = _ranks_of(graph)
            with futures_met() as met:
                self._submit_tasks(graph, met)
            for task in graph.tasks:
                if task.n_uses:
                    result = task.value
                    task.value = result.future = Future(self._engine, result.state)
            return outputs()
        except BaseException:
            self._give_up(graph)
            raise
        finally:
            graph.unlink()

    def _submit_tasks(self, graph: Graph, met: list[Future]) -> None:
        ready, dropped, part = graph.sources, self._dropped, self._part
        while ready:
            task = ready.pop()
            try:
                result = self._encode(task, part)
            except SerializationError as exc:
                where = f"task {task.key!r}: {exc.where}"
                raise SerializationError(where, exc.type_name, exc.text) from exc
            finish(task, result, ready, dropped)
            if len(part.rows) >= self._n_rows or part.nbytes >= MAX_NBYTES:
                self._post(part, met)
                part = self._part = self._new_part()
                self._n_rows = _MAX_ROWS
        self._post(part, met)
        self._part = self._new_part()
        self._engine.check_open()

    def _new_part(self) -> _GraphPart:
        return _GraphPart(Sharing(self._encoder.shared))

    # --- One task ---------------------------------------------------------------------------------

    def _encode(self, task: GraphTask, part: _GraphPart) -> _TaskResult:
        """Append a task to the part, and return its result."""
        func, args, refs = task.func, task.args, task.refs
        keys: dict[str, int] = {}
        places: list[int] = []
        if refs:
            if func is index_of_parts:
                args, refs = [None], [(0, in_order(refs[0][1]))]
            if refs[0][1].__class__ is ValuesOf and args[0] is None and len(args) == 1:
                func, args, refs = self._call_of_node(func, refs[0][1])
            for _, ref in refs:
                if ref.__class__ is not SubmittedTask and not _is_plain(ref):
                    # The worker fills in these, because calls may be among them.
                    func, args, refs = call_filled, [func, args, refs], []
                    break
            for i, ref in refs:
                if ref.__class__ is SubmittedTask:
                    args[i] = keys.setdefault(ref.value.key, len(keys))
                    places.append(i)
                elif ref.__class__ is ListOf and _is_full(ref):
                    inner = [each.value.key for _, each in ref.refs]
                    args[i] = [keys.setdefault(key, len(keys)) for key in inner]
                    places.append(-1 - i)
                else:
                    args[i] = ref.value
        if func is self._fused:
            func = self._fused_call(task.key)
        elif func is index_of_parts and places == [-1] and len(args) == 1:
            func, args, places = self._index, [], []
            part.indexes.add(len(part.rows))
        known = part.known.get(id(func))
        function, place = known or self._add_function(part, func)
        is_known = part.sharing.knows(args)
        call = _share(part, function.name, args, places, keys, None) if is_known else None
        if call is None:
            call = dumps_placed(function.name, args, places, keys)
            nbytes = blob_nbytes(call[0])
            if nbytes > SHARED_NBYTES:
                call = _share(part, function.name, args, places, keys, nbytes) or call
        blob, dependencies = call
        if isinstance(blob, Payload):
            blob = blob.detached()
        if func is self._index:
            dependencies = list(keys)
        part.nbytes += blob_nbytes(blob)
        if len(dependencies) > MAX_DEPENDENCIES:
            raise too_many_dependencies(function.name, len(dependencies))
        content = blob if blob.__class__ is bytes else _bytes_of(blob)
        if dependencies:
            content += repr(dependencies).encode("utf-8", "surrogatepass")
        digest = blake2b(content, digest_size=16, key=function.id).digest()
        key = task.key
        name = self._names.pop(key, "")
        result = _TaskResult(name)
        if not name:
            digest = self._name_by_hand(task, result, digest, part)
        part.rows.append((result, key, place, blob, dependencies, digest))
        return result

    def _call_of_node(
        self, node: Any, values: ValuesOf
    ) -> tuple[Any, list[Any], list[tuple[int, HasValue]]]:
        """Return function, arguments and references for the call of a node of dask."""
        name = getattr(getattr(node, "func", None), "__name__", None) or type(node).__name__
        call = self._node_calls.get(name)
        if call is None:
            call = self._node_calls[name] = _NodeCall(name)
        items = ListOf([None] * len(values.refs))
        items.refs = [(i, ref) for i, (_, ref) in enumerate(values.refs)]
        return call, [node, [key for key, _ in values.refs], None], [(2, items)]

    def _fused_call(self, key: Any) -> _FusedCall:
        name = prefix_of(key)[:_MAX_KEY_CHARS]
        call = self._fused_calls.get(name)
        if call is None:
            call = self._fused_calls[name] = _FusedCall(name, self._fused)
        return call

    def _add_function(self, part: _GraphPart, func: Any) -> tuple[FunctionRecord, int]:
        function = func if func is self._index else self._encoder.function(func)
        place = part.functions.get(function)  # two objects may be one function
        if place is None:
            place = part.functions[function] = len(part.functions)
            part.nbytes += len(function.blob)
        known = part.known[id(func)] = function, place
        return known

    def _name_by_hand(
        self, task: GraphTask, result: _TaskResult, digest: bytes, part: _GraphPart
    ) -> bytes:
        """Give the result of a task whose name was chosen by hand its name, or also its state.

        Returns:
            The hash that is to be sent with it.
        """
        key = task.key
        try:
            name = text_of(key)
        except (TypeError, ValueError):
            name = ""
        if name and self._keeps_names and task.n_uses and not task.dependents:
            try:
                (result.state,), replaced = self._engine.attach([name], [digest])
            except ValueError:  # it is the name of another call
                pass
            else:
                part.replaced += replaced
                result.key = name
                return digest
        if not 0 < len(name) <= _MAX_KEY_CHARS:  # the rest says less than the key
            digest = blake2b(digest + repr(key).encode("utf-8", "replace"), digest_size=16).digest()
            name = (name or str(key))[:_MAX_KEY_CHARS].encode("utf-8", "replace").decode()
        result.key = f"{name}-{digest.hex()}"
        return NO_HASH  # it is in the key

    # --- One part ---------------------------------------------------------------------------------

    def _post(self, part: _GraphPart, met: list[Future]) -> None:
        """Hand a part to the core, and release what no task needs any more."""
        engine = self._engine
        if part.rows:
            if not engine.core.is_linked:
                with resumed_collector():  # this may wait for a scheduler
                    admit(engine, part.nbytes)
            results, keys, places, args, inputs, hashes = map(list, zip(*part.rows, strict=True))
            states, replaced = self._attach(part, results)
            uses = part.sharing.uses
            uses.submit(engine, lambda row: self._options.of(keys[row]).priority, states, inputs)
            ranks = [] if self._ranks is None else [self._ranks[key] for key in keys]
            functions = list(part.functions)
            common = None if part.indexes else self._options.of_all
            operations: list[TaskColumns | TaskRecord]
            if common is not None:
                inputs = inputs if any(inputs) else []
                named = None if hashes.count(NO_HASH) == len(hashes) else hashes
                rows = states, functions[0], args, inputs, common, named, replaced
                operations = [TaskColumns(*rows, functions, places, ranks)]
            else:
                failed = {state.key: state for state in replaced}
                operations = [
                    TaskRecord(
                        state,
                        functions[places[i]],
                        args[i],
                        inputs[i],
                        self._options.of(keys[i], is_index=i in part.indexes),
                        hashes[i],
                        failed.get(state.key),
                        ranks[i] if ranks else None,
                    )
                    for i, state in enumerate(states)
                ]
            borrowing = borrow(engine, met) if met else None
            met.clear()
            post = engine.post_submission if borrowing is None else borrowing.post
            for operation in operations:
                post(operation)
        dropped = self._dropped
        while dropped:
            engine.post_later(dropped.pop().state)

    def _attach(
        self, part: _GraphPart, results: list[_TaskResult]
    ) -> tuple[list[FutureState], list[FutureState]]:
        """Return the states of all rows, and the failed ones that they replace."""
        new = [result for result in results if result.state is None]
        found, replaced = self._engine.table.attach([result.key for result in new])
        for result, state in zip(new, found, strict=True):
            result.state = state
        states: Any = [result.state for result in results]
        return states, part.replaced + replaced

    def _give_up(self, graph: Graph) -> None:
        """Release what was submitted of a graph that cannot be submitted as a whole."""
        found = [task.value for task in graph.tasks]
        found += self._dropped
        found += [row[0] for row in self._part.rows]
        for result in {id(each): each for each in found}.values():
            if (
                isinstance(result, _TaskResult)
                and result.state is not None
                and result.future is None
            ):
                self._engine.post_later(result.state)


def _share(
    part: _GraphPart,
    name: str,
    args: list[Any],
    places: list[int],
    keys: dict[str, int],
    nbytes: int | None,
) -> tuple[Blob, list[str]] | None:
    """Do `Sharing.call` for the next row of a part."""
    results = [_TaskResult(key) for key in keys]
    args = list(args)
    for i in places:
        if i >= 0:
            args[i] = results[args[i]]
        else:
            args[-1 - i] = [results[number] for number in args[-1 - i]]
    return part.sharing.call(len(part.rows), name, tuple(args), {}, nbytes)


def _ranks_of(graph: Graph) -> dict[Any, int] | None:
    """Return the place of each task in the order that was given for the graph; None = no order."""
    if graph.priorities is None:
        return None
    get = graph.priorities.get
    keys = sorted([task.key for task in graph.tasks], key=lambda key: get(key, float("inf")))
    return {key: rank for rank, key in enumerate(keys)}


def _bytes_of(blob: Any) -> bytes:
    """Return the content of a blob, or for large buffers a hash of them."""
    if not isinstance(blob, Payload):
        return bytes(blob)
    return bytes(blob.data) + digest_of(blob.buffers).encode()


def _is_plain(reference: Any) -> bool:
    """Return whether there is no call in a reference, so that its value can be made here."""
    stack = [reference]
    while stack:
        ref = stack.pop()
        if ref.__class__ is SubmittedTask or ref.__class__ is Literal:
            continue
        if not isinstance(ref, ListOf) or isinstance(ref, CallOf):
            return False
        stack += [inner for _, inner in ref.refs]
    return True


def _is_full(items: ListOf) -> bool:
    """Return whether a list consists of results alone."""
    refs = items.refs
    return len(refs) == len(items.template) and all(
        [ref.__class__ is SubmittedTask for _, ref in refs]  # noqa: C419 - faster
    )
