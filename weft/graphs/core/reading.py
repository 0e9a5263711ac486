"""Reads a graph as users write it into linked tasks.

    {"x": 1,                         a literal
     "y": (inc, "x"),                a task: a tuple that begins with a callable
     "z": (add, "y", (inc, 5)),      arguments: keys, calls, literals
     "all": [(inc, "x"), "z"],       containers of these, nested to any depth
     "w": "z"}                       an alias

Also the nodes of `dask._task_spec`, alone or among the above. A tuple, a string or a number has the
same meaning as in dask (`dask._task_spec.convert_legacy_task`): a call if it begins with a
callable, a reference if it is a key, else a literal. Dicts among the arguments are literals.

Reading begins at the requested keys, so tasks that they do not need are left out. It goes depth
first, from the last key to the first and from the last argument to the first: the sources come out
as a stack on which tasks that are needed together lie together, the first ones on top.

Core. Costs about a microsecond per task and a quarter of one per further edge. A graph may have any
depth. Containers and calls within arguments may be nested some hundred deep (`.value` recurses into
them), for worker processes to any depth (`processes.encoding`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from ...protocol.errors import GraphCycle, GraphError, MissingKey
from .tasks import CallOf, ContainerOf, GraphTask, HasValue, ListOf, Literal, ValuesOf

_MISSING = object()

#: The way in which an object is read, by its exact type; most objects in graphs have one of these.
_LITERAL, _KEY, _TUPLE, _LIST, _SET = range(5)
_KINDS: dict[type, int] = {
    tuple: _TUPLE,
    str: _KEY,
    int: _KEY,
    list: _LIST,
    float: _KEY,
    set: _SET,
    frozenset: _SET,
    bool: _KEY,  # True equals 1 as a key of dicts
    bytes: _LITERAL,
    type(None): _LITERAL,
    dict: _LITERAL,
}
_CONTAINERS = (list, tuple, set, frozenset)
_KEYS = (str, int, float)

#: {type: function that makes an object of it from a list}
_MAKERS: dict[type, Callable[[list[Any]], Any]] = {tuple: tuple, set: set, frozenset: frozenset}


class NodeTypes(NamedTuple):
    """The classes by which objects of dask are recognised; see `dask_graphs`."""

    #: Called with {key: value} of its `dependencies`.
    node: Any
    #: The node that calls `func(*args, **kwargs)`, with nodes and refs among the arguments. Its
    #: subclasses are called as nodes.
    task: Any
    #: A node that stands for the key `target`.
    alias: Any
    #: A node that holds a `value`.
    data: Any
    #: A reference to the key `key`.
    ref: Any


#: Returns the reference for a key whose value is known outside of the graph, None if it is not:
#: called with the key, and whether the graph has a task of this key as well.
FindOutside: TypeAlias = Callable[[Any, bool], HasValue | None]


def _is_future(item: Any) -> bool:
    """Return whether this is a reference that stands for its own value, not for a key here."""
    return getattr(type(item), "__dask_future__", False)


class Graph:
    """Linked tasks, and the structure of the requested values.

    Attributes:
        tasks: all tasks, each once, dependents before their dependencies.
        sources: the tasks without dependencies, as a stack: the end is to run first.
        priorities: the numbers that `sort` was given; None = it was not called.
    """

    __slots__ = ("_found", "literal_uses", "outputs", "priorities", "sources", "tasks")

    def __init__(
        self,
        outputs: Any,
        tasks: list[GraphTask],
        sources: list[GraphTask],
        found: dict[Any, HasValue],
        literal_uses: list[tuple[GraphTask, Any]],
    ) -> None:
        #: References, nested like the keys: lists of these, or one reference.
        self.outputs = outputs
        self.tasks = tasks
        self.sources = sources
        self.priorities: Mapping[Any, Any] | None = None
        self._found = found
        #: Tasks, and the keys of literals that they use; only for graphs that are observed.
        self.literal_uses = literal_uses

    @property
    def n_tasks(self) -> int:
        """The number of calls to make."""
        return len(self.tasks)

    def walk(self) -> Iterator[GraphTask]:
        """Yield every task once."""
        return iter(self.tasks)

    def literals(self) -> Iterator[tuple[Any, Any]]:
        """Yield key and value of the entries that need no call."""
        for key, reference in self._found.items():
            if isinstance(reference, Literal):
                yield key, reference.value

    def sort(self, priorities: Mapping[Any, Any]) -> None:
        """Sort tasks that become ready together by their numbers, the lowest first.

        Args:
            priorities: {key: number}, as `dask.order.order` gives them. Keys it lacks come last.
        """
        self.priorities = priorities
        get = priorities.get

        def last_first(task: GraphTask) -> Any:
            return -get(task.key, float("inf"))

        self.sources.sort(key=last_first)
        for task in self.tasks:
            if len(task.dependents) > 1:
                task.dependents.sort(key=last_first)

    def results(self) -> Any:
        """Return the requested values, once all tasks have finished.

        Lists of keys give tuples, as dask's own engines do.
        """
        return _values(self.outputs)

    def unlink(self) -> None:
        """Remove all links of an abandoned graph, which are cycles. No task must start after this.

        Tasks keep their values, because a dependent may have started in another thread and not have
        read them yet.
        """
        for task in self.tasks:
            task.dependents = []
        # The traceback of the error that is raised refers to this object.
        self.sources.clear()
        self.tasks, self.outputs, self._found = [], [], {}


def _values(outputs: Any) -> Any:
    if outputs.__class__ is list:
        return tuple([_values(output) for output in outputs])
    return outputs.value


def read_graph(
    dsk: Mapping[Any, Any],
    keys: Any,
    *,
    task_class: type[GraphTask] = GraphTask,
    node_types: NodeTypes | None = None,
    is_observed: bool = False,
    outside: FindOutside | None = None,
) -> Graph:
    """Read the tasks that are needed for `keys`.

    Args:
        dsk: {key: literal, key, task, container or node}. Not changed. A `Literal` stands for its
            value, which is not interpreted.
        keys: a key, or a list of keys and of such lists.
        task_class: the class of the tasks that are made.
        node_types: the classes of dask's nodes; None = there are none.
        is_observed: dask's callbacks must see the graph as dask does: aliases are tasks, and the
            users of each literal are noted.
        outside: finds values that are known already; None = there are none. A task whose value is
            found is not read, and neither are those that only it needs.

    Raises:
        MissingKey: a requested key, or one that a node depends on, is not in the graph.
        GraphCycle: a task needs its own result.
        GraphError: `dsk` is no mapping, or a requested key cannot be a key.
    """
    if not isinstance(dsk, dict):
        if not isinstance(dsk, Mapping):
            raise GraphError(f"a graph is a mapping of keys to tasks, not {_named(dsk)}")
        dsk = dict(dsk)
    reader = _GraphReader(dsk, task_class, node_types, is_observed, outside)
    outputs = reader.read_outputs(keys)
    reader.read_all()
    graph = Graph(outputs, reader.tasks, reader.sources, reader.found, reader.literal_uses)
    # A task that was met again may have been met below itself. Trees need no such check.
    if reader.met_again:
        _refuse_cycles(graph)
    return graph


class _GraphReader:
    """The tables of one reading."""

    def __init__(
        self,
        dsk: dict[Any, Any],
        task_class: type[GraphTask],
        node_types: NodeTypes | None,
        is_observed: bool,
        outside: FindOutside | None,
    ) -> None:
        self.dsk = dsk
        self.outside = outside
        self.task_class = task_class
        self.node_types = node_types
        self.is_observed = is_observed
        self._plain_node = None if node_types is None else node_types.task
        self._node_classes = () if node_types is None else (node_types.node, node_types.ref)
        #: {key: object that its references refer to}, for the keys that were met.
        self.found: dict[Any, HasValue] = {}
        #: (task, its entry in the graph), still to be read.
        self.unread: list[tuple[GraphTask, Any]] = []
        self.tasks: list[GraphTask] = []
        self.sources: list[GraphTask] = []
        self.literal_uses: list[tuple[GraphTask, Any]] = []
        #: Some task was referred to twice.
        self.met_again = False

    # --- Requested keys ---------------------------------------------------------------------------

    def read_outputs(self, keys: Any) -> Any:
        """Return references in the place of keys."""
        if isinstance(keys, list):
            return [self.read_outputs(key) for key in keys]
        try:
            is_there = keys in self.dsk
        except TypeError:
            raise GraphError(
                f"{_named(keys)} cannot be a key: ask for one key, or for a list of keys"
            ) from None
        output = self.look_up(keys) if is_there else self._look_outside(keys, None)
        if isinstance(output, GraphTask):
            output.n_uses = 1
        return output

    # --- One key ----------------------------------------------------------------------------------

    def look_up(self, key: Any) -> HasValue:
        """Return the object that a key refers to; a task is noted for reading.

        The key is in the graph.
        """
        reference = self.found.get(key)
        if reference is not None:
            self.met_again = True
            return reference
        dsk = self.dsk
        outside = self.outside
        aliases: dict[Any, None] = {}  # that were followed
        while True:
            entry = dsk[key]
            if outside is not None:
                reference = outside(key, True)
                if reference is not None:
                    self.found[key] = reference
                    break
            if entry.__class__ is tuple and entry and callable(entry[0]):
                reference = self._add_task(key, entry)
                break
            target = self._target(entry, key)
            if target is _MISSING:
                reference = self._read_entry(key, entry)
                break
            if target not in dsk or target == key:
                reference = self._look_outside(target, key)
                self.found[key] = reference
                break
            if self.is_observed:
                reference = self._add_task(key, (_same, target))
                break
            aliases[key] = None
            if target in aliases:
                names = list(aliases)
                raise GraphCycle([*names[names.index(target) :], target])
            key = target
            reference = self.found.get(key)
            if reference is not None:
                self.met_again = True
                break
        for alias in aliases:
            self.found[alias] = reference
        return reference

    def _look_outside(self, key: Any, needed_by: Any) -> HasValue:
        """Return the reference for a key that is not in the graph, or that stands for itself there.

        Raises:
            MissingKey: it is not known outside of the graph either.
        """
        reference = self.found.get(key)
        if reference is None and self.outside is not None:
            reference = self.outside(key, False)
        if reference is None:
            raise MissingKey(key, needed_by)
        if key not in self.dsk:
            self.found[key] = reference
        return reference

    def _target(self, entry: Any, key: Any) -> Any:
        """Return the key that an entry is an alias of, `_MISSING` if it is none."""
        kind = _KINDS.get(entry.__class__)
        if kind is None:
            types = self.node_types
            if types is not None and isinstance(entry, (types.alias, types.ref)):
                if _is_future(entry):
                    return _MISSING
                return entry.target if isinstance(entry, types.alias) else entry.key
            kind = _KEY if isinstance(entry, (*_KEYS, tuple)) else _LITERAL
        if kind in (_KEY, _TUPLE):
            try:
                # An entry that equals its own key is no reference.
                return entry if entry in self.dsk and entry != key else _MISSING
            except TypeError:
                return _MISSING
        return _MISSING

    def _read_entry(self, key: Any, entry: Any) -> HasValue:
        """Return the reference for an entry that is neither a call nor an alias."""
        types = self.node_types
        if types is not None and isinstance(entry, types.node):
            if isinstance(entry, types.data):
                reference: HasValue = Literal(entry.value)
            else:
                return self._add_task(key, entry)
        elif isinstance(entry, _CONTAINERS):
            return self._add_task(key, (_same, entry))
        elif isinstance(entry, Literal):
            reference = entry
        else:
            reference = Literal(entry)
        self.found[key] = reference
        return reference

    def _add_task(self, key: Any, entry: Any) -> GraphTask:
        task = self.task_class(key)
        self.found[key] = task
        self.unread.append((task, entry))
        return task

    # --- Arguments --------------------------------------------------------------------------------

    def read_all(self) -> None:
        """Read the tasks that were met, and those that are met during that."""
        unread, tasks, sources = self.unread, self.tasks, self.sources
        while unread:
            task, entry = unread.pop()
            tasks.append(task)
            refs: list[tuple[int, HasValue]] = []
            dependencies: list[GraphTask] = []
            if entry.__class__ is tuple:
                task.func = entry[0]
                args = list(entry[1:])
                self._read_items(task, args, refs, dependencies)
            elif type(entry) is self._plain_node and not entry.kwargs:
                # The same as calling the node, without visiting all arguments again.
                task.func = entry.func
                args = list(entry.args)
                for i, arg in enumerate(entry.args):
                    if isinstance(arg, self._node_classes):
                        self._read_node(task, arg, args, i, refs, dependencies)
            else:
                task.func = entry
                args = [None]
                refs.append((0, self._values_of(entry, task, dependencies)))
            task.args = args
            task.refs = refs
            task.dependencies = dependencies
            task.n_waiting = len(dependencies)
            if not dependencies:
                sources.append(task)

    def _read_items(
        self,
        task: GraphTask,
        items: list[Any],
        refs: list[tuple[int, HasValue]],
        dependencies: list[GraphTask],
    ) -> None:
        """Replace the references in `items`, and in the containers there."""
        found, dsk = self.found, self.dsk
        containers: list[ListOf] = []
        while True:
            i = -1
            for item in items:
                i += 1
                kind = _KINDS.get(item.__class__)
                if kind is None:
                    kind = self._kind_of(item)
                if kind == _LITERAL:
                    continue
                if kind <= _TUPLE:
                    if item.__class__ is tuple and item and callable(item[0]):
                        container: ListOf = CallOf(list(item[1:]), item[0])
                        refs.append((i, container))
                        containers.append(container)
                        continue
                    try:
                        reference = found.get(item)
                        if reference is not None:
                            self.met_again = True
                        elif item in dsk:
                            reference = self.look_up(item)
                        elif kind == _KEY:
                            continue
                    except TypeError:  # a tuple with an item that has no hash
                        reference = None
                    if reference is not None:
                        if reference.__class__ is Literal:
                            items[i] = reference.value
                            if self.is_observed:
                                self.literal_uses.append((task, item))
                        else:
                            reference.dependents.append(task)  # type: ignore[attr-defined]
                            dependencies.append(reference)  # type: ignore[arg-type]
                            refs.append((i, reference))
                        continue
                if kind == _LIST:
                    container = ListOf(item.copy())
                elif kind == _NODE:
                    self._read_node(task, item, items, i, refs, dependencies)
                    continue
                else:
                    container = _container_of(item)
                refs.append((i, container))
                containers.append(container)
            if not containers:
                return
            container = containers.pop()
            items, refs = container.template, container.refs

    def _kind_of(self, item: Any) -> int:
        """Return how to read an object of an uncommon type."""
        if isinstance(item, _KEYS):
            return _KEY
        if isinstance(item, tuple):
            return _TUPLE
        if isinstance(item, _CONTAINERS):
            return _SET
        types = self.node_types
        if types is not None and isinstance(item, (types.node, types.ref)) and not _is_future(item):
            return _NODE
        return _LITERAL

    # --- Nodes of dask ----------------------------------------------------------------------------

    def _read_node(
        self,
        task: GraphTask,
        node: Any,
        items: list[Any],
        i: int,
        refs: list[tuple[int, HasValue]],
        dependencies: list[GraphTask],
    ) -> None:
        """Replace a node among the arguments of a call."""
        types = self.node_types
        assert types is not None
        if isinstance(node, types.data):
            items[i] = node.value
            return
        if _is_future(node):
            return
        if isinstance(node, (types.alias, types.ref)):
            key = node.target if isinstance(node, types.alias) else node.key
            reference = self._depend(key, task, dependencies)
            if isinstance(reference, Literal):
                items[i] = reference.value
                return
        else:
            call = CallOf([None], node)
            call.refs.append((0, self._values_of(node, task, dependencies)))
            reference = call
        refs.append((i, reference))

    def _values_of(self, node: Any, task: GraphTask, dependencies: list[GraphTask]) -> ValuesOf:
        keys = self._keys_in_order(node)
        return ValuesOf([(key, self._depend(key, task, dependencies)) for key in keys])

    def _keys_in_order(self, node: Any) -> list[Any]:
        """Return the dependencies of a node, those among its own arguments in their order there.

        The node has them as a set, whose order differs between processes.
        """
        types = self.node_types
        assert types is not None
        left = dict.fromkeys(node.dependencies)
        keys = []
        for arg in getattr(node, "args", ()):
            if isinstance(arg, types.ref):
                key = arg.key
            elif isinstance(arg, types.alias):
                key = arg.target
            else:
                continue
            if key in left:
                del left[key]
                keys.append(key)
        return [*keys, *left]

    def _depend(self, key: Any, task: GraphTask, dependencies: list[GraphTask]) -> HasValue:
        if key in self.dsk:
            reference = self.look_up(key)
        else:
            reference = self._look_outside(key, task.key)
        if isinstance(reference, GraphTask):
            reference.dependents.append(task)
            dependencies.append(reference)
        elif self.is_observed:
            self.literal_uses.append((task, key))
        return reference


#: Nodes are recognised by isinstance, not by their exact types.
_NODE = 5


def _same(value: Any) -> Any:
    return value


def _container_of(item: Any) -> ListOf:
    """Return a container like a tuple, a set, or an object of a subclass of one of these."""
    cls = type(item)
    make = _MAKERS.get(cls)
    if make is None and hasattr(cls, "_fields") and isinstance(item, tuple):
        return CallOf(list(item), cls)  # a named tuple
    return ContainerOf(list(item), make or cls)


def _refuse_cycles(graph: Graph) -> None:
    """Raise `GraphCycle` if not all tasks can be run, one after the other."""
    left: dict[GraphTask, int] = {}
    stack = graph.sources.copy()
    n_reached = 0
    while stack:
        task = stack.pop()
        n_reached += 1
        for dependent in task.dependents:
            n_left = left.get(dependent, dependent.n_waiting)
            if n_left == 1:
                stack.append(dependent)
                left[dependent] = 0
            else:
                left[dependent] = n_left - 1
    if n_reached == len(graph.tasks):
        return
    reached = {task for task, n_left in left.items() if not n_left}
    reached.update(graph.sources)
    # Each task that was not reached waits for another such task, so following them finds a cycle.
    task = next(task for task in graph.tasks if task not in reached)
    path: dict[GraphTask, None] = {}
    while task not in path:
        path[task] = None
        task = next(other for other in task.dependencies if other not in reached)
    keys = [task.key for task in path]
    cycle = [*keys[keys.index(task.key) :], task.key]
    graph.unlink()
    raise GraphCycle(cycle)


def _named(obj: object) -> str:
    return f"{type(obj).__name__}: {str(obj)[:60]}" if not isinstance(obj, type) else repr(obj)
