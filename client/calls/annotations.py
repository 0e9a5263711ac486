"""Annotations of `dask.annotate` as options of the submission of tasks.

    with dask.annotate(workers="gpu-0", resources={"GPU": 1}):      # where a collection is made
        x = da.ones(...)
    with dask.annotate(priority=10, retries=2):                     # where it is computed
        x.compute()

dask keeps the former with the layers of a graph, the latter in a context variable. A layer's
annotation takes precedence over the call and the context, because it concerns fewer tasks. A value
may be a function of the key.

dask's optimization fuses chains of tasks and forgets what they were annotated with. So a graph with
annotated layers is optimized here, and only tasks with the same annotations become one.
"""

from __future__ import annotations

import copy
import functools
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from ...graphs.dask_graphs import as_mapping
from ...protocol.errors import NotSupported, UnknownOption
from ...protocol.values import tracing
from ...protocol.values.exceptions import add_note
from ...protocol.wire.columns import MAX_SPAN_TAGS
from ...protocol.wire.options import KEYWORDS, NO_OPTIONS, TaskOptions
from ...protocol.wording import nearest
from .call_options import NOT_GIVEN, option_of
from .conditions import NO_CONDITIONS
from .options import DEFAULTS, make_options
from .spans import check_tags, current_span

#: The module that has the annotations of the context.
_DASK: Final = "dask.base"
#: What can be annotated beside options: tags, which are put behind those of `weft.span`.
_SPAN: Final = "span"
_ANNOTATED: Final = (*KEYWORDS, _SPAN)
#: {annotation that dask.distributed acts upon: the values that ask for weft's own behaviour}.
_REFUSED: Final[dict[str, tuple[object, ...]]] = {"executor": (None, "default")}
_SIMILAR: Final = 0.75
#: The name under which a layer's annotations pass through dask's optimization as one value.
_WHOLE: Final = "weft-annotations"
#: Options of dask's own engines, which dask passes to all schedulers and few of them use.
_OF_ENGINES: Final = frozenset({"num_workers", "optimize_graph", "order", "pool"})


def active_annotations() -> Mapping[str, Any]:
    """Return the annotations of the context, {} if there are none or dask is not loaded."""
    base = sys.modules.get(_DASK)
    get = None if base is None else getattr(base, "get_annotations", None)  # half imported
    found: Mapping[str, Any] = {} if get is None else get()
    return found


class AnnotatedOptions:
    """The options of annotated tasks, of the context or of their graph.

    Attributes:
        common: the options of all tasks without annotations of their own; None if they differ.
    """

    def __init__(
        self,
        given: Mapping[str, Any],
        active: Mapping[str, Any],
        of_tasks: Mapping[Any, Mapping[str, Any]],
    ) -> None:
        """Combine the options that hold for all tasks.

        Args:
            given: the options of the call; None and the defaults of `submit` mean none.
            active: the annotations of the context.
            of_tasks: {key: annotations}.

        Raises:
            NotSupported, UnknownOption: an annotation is one that weft cannot honour.
            TypeError, ValueError: a value has the wrong type or is out of range.
        """
        _check(active.items())
        self._tags = current_span()
        self._trace = _current_trace()
        self._said = {name: active[name] for name in _ANNOTATED if name in active}
        for name, value in given.items():
            if value is not None and (value or DEFAULTS[name] is None):
                self._said[name] = value
        self._of_tasks = of_tasks
        is_uniform = not any(map(callable, self._said.values()))
        self.common = self._make(self._said, None) if is_uniform else None

    @property
    def of_all(self) -> TaskOptions | None:
        """The options that all tasks have in common, with or without annotations; None if none."""
        return None if self._of_tasks else self.common

    def of(self, key: Any, *, is_index: bool = False) -> TaskOptions:
        """Return the options of one task, or of an index of parts."""
        annotations = self._of_tasks.get(key)
        if is_index:
            return self.of(key).changed(part_index=True)
        if annotations:
            return self._make({**self._said, **annotations}, key)
        return self.common or self._make(self._said, key)

    def _make(self, values: Mapping[str, Any], key: Any) -> TaskOptions:
        options = _make(values, key, self._tags)
        return options.changed(trace_context=self._trace) if self._trace else options


def options_of_keywords(
    func: Callable[..., Any],
    keywords: dict[str, Any],
    timeout: Any,
    meta: Any,
    priority: Any,
    retries: Any,
    workers: Any,
    allow_other_workers: Any,
    resources: Any,
    conditions: dict[str, Any] = NO_CONDITIONS,
) -> TaskOptions | AnnotatedOptions:
    """Return what `options_of_call` does, at once for a call without options, as most calls are.

    `timeout` and `meta` may be meant for the function, and are then added to its `keywords`.
    """
    if (
        timeout is meta is NOT_GIVEN
        and retries is workers is resources is None
        and priority == 0
        and not allow_other_workers
        and conditions is NO_CONDITIONS
        and not current_span()
        and tracing.inject is None
        and not (_DASK in sys.modules and active_annotations())
    ):
        return NO_OPTIONS
    return options_of_call(
        priority=priority,
        retries=retries,
        workers=workers,
        allow_other_workers=allow_other_workers,
        resources=resources,
        timeout=None if timeout is NOT_GIVEN else option_of(func, "timeout", timeout, keywords),
        meta=None if meta is NOT_GIVEN else option_of(func, "meta", meta, keywords),
        **conditions,
    )


def conditions_of_keywords(
    func: Callable[..., Any], keywords: dict[str, Any], values: tuple[Any, ...]
) -> dict[str, Any]:
    """Return the conditions of a call, by the values of the keywords of `NO_CONDITIONS`.

    It is `NO_CONDITIONS` itself if the call has none. What the function takes itself is added to
    its `keywords`.
    """
    found = {
        name: None if value is NOT_GIVEN else option_of(func, name, value, keywords)
        for name, value in zip(NO_CONDITIONS, values, strict=True)
    }
    return NO_CONDITIONS if found == NO_CONDITIONS else found


def _current_trace() -> list[str]:
    return [] if tracing.inject is None else tracing.inject()


def options_of_call(**given: Any) -> TaskOptions | AnnotatedOptions:
    """Return the options of a call, completed by those of the context.

    Args:
        given: {keyword: value}, see `make_options`.

    Raises:
        NotSupported, UnknownOption: an annotation is one that weft cannot honour.
        TypeError, ValueError: a value has the wrong type or is out of range.
    """
    active = active_annotations() if _DASK in sys.modules else None
    if not active:
        options = make_options(given)
        if tags := current_span():
            options = _default_in(tags) if options is NO_OPTIONS else options.changed(span=[*tags])
        trace = _current_trace()
        return options.changed(trace_context=trace) if trace else options
    return AnnotatedOptions(given, active, {})


@functools.lru_cache(maxsize=64)
def _default_in(tags: tuple[str, ...]) -> TaskOptions:
    """Return one object for all calls without options in a span, which is not compared then."""
    return NO_OPTIONS.changed(span=[*tags])


def check_options(options: Iterable[str]) -> None:
    """Refuse options of `Client.get` that look like misspelt ones.

    Other unknown options are ignored, because dask passes on all options of `compute`.

    Raises:
        UnknownOption: an option looks misspelt.
    """
    for name in options:
        if name in KEYWORDS or name in _OF_ENGINES:
            continue
        if close := nearest(name, KEYWORDS, _SIMILAR):
            raise UnknownOption(
                f"there is no option {name!r}: did you mean {close!r}? Those of tasks on a "
                f"cluster are {', '.join(KEYWORDS)}"
            )


def read_annotated(
    dsk: Any, make_graph: Callable[[Any], Mapping[Any, Any] | None] | None = None
) -> tuple[Mapping[Any, Any], dict[Any, dict[str, Any]]]:
    """Return a graph as a mapping, and {key: annotations} of its tasks that have any.

    Args:
        dsk: the graph in any form; expressions and a `HighLevelGraph` of dask have annotations.
        make_graph: returns the graph where it is not to be made by dask, else None.

    Raises:
        GraphError: it is no graph.
        NotSupported, UnknownOption: an annotation is one that weft cannot honour.
    """
    mapping = _optimize_annotated(dsk)
    if mapping is None and make_graph is not None:
        mapping = make_graph(dsk)
    if mapping is None:
        mapping = as_mapping(dsk)
    found: dict[Any, dict[str, Any]] = {}
    layers = getattr(mapping, "layers", None)
    collect = getattr(dsk, "__dask_annotations__", None)
    if isinstance(layers, Mapping):  # a HighLevelGraph
        for layer in layers.values():
            annotations = getattr(layer, "annotations", None) or {}
            for name, value in annotations.get(_WHOLE, annotations).items():
                _add(found, name, dict.fromkeys(layer, value))
    elif callable(collect):
        for name, values in collect().items():
            _add(found, name, values)
    return mapping, found


def _optimize_annotated(dsk: Any) -> Any:
    """Return the `HighLevelGraph` of an expression whose layers have annotations; else None.

    dask's own optimization is good enough where the annotations are those of the context, which
    all tasks have.
    """
    expressions: Any = sys.modules.get("dask._expr")
    kind = getattr(expressions, "HLGExpr", None)
    if kind is None or not isinstance(dsk, expressions.Expr):
        return None
    parts = [dsk] if isinstance(dsk, kind) else dsk.operands
    if not all(isinstance(part, kind) for part in parts):
        return None
    graphs = [part.hlg for part in parts]
    layers = [layer for graph in graphs for layer in graph.layers.values()]
    active = active_annotations()
    if not any(layer.annotations and layer.annotations != active for layer in layers):
        return None
    for i, part in enumerate(parts):
        if part.low_level_optimizer is not None:  # otherwise the user wants none
            keys = [*sys.modules["dask.core"].flatten(part.__dask_keys__())]
            graphs[i] = _optimize(graphs[i], keys)
    return sys.modules["dask.highlevelgraph"].HighLevelGraph.merge(*graphs)


def _optimize(graph: Any, keys: list[Any]) -> Any:
    """Leave out what `keys` do not need, and fuse layers of blocks with the same annotations.

    dask would fuse layers with different annotations as well, and mix them: a worker's name becomes
    the set of its letters.
    """
    layers = dict(graph.layers)
    for name, layer in layers.items():
        if layer.annotations:
            layers[name] = copy.copy(layer)
            layers[name].annotations = {_WHOLE: layer.annotations}
            if any(map(callable, layer.annotations.values())):
                layers[name].annotations[name] = None  # a function of these keys, so not fused
    graph = type(graph)(layers, graph.dependencies)
    blockwise: Any = sys.modules.get("dask.blockwise")
    if blockwise is not None:
        graph = blockwise.optimize_blockwise(graph, keys=keys)
    return graph.cull(keys)


def _add(found: dict[Any, dict[str, Any]], name: str, values: Mapping[Any, Any]) -> None:
    for key, value in values.items():
        # dask's mark of a layer that lost its annotations when it was fused.
        if type(value).__name__ == "_AnnotationsTombstone":
            continue
        if name in _ANNOTATED:
            found.setdefault(key, {})[name] = value
        else:
            _check([(name, value)])


def _check(annotations: Iterable[tuple[str, Any]]) -> None:
    """Refuse annotations that would have no effect. Other names belong to the user's own code."""
    for name, value in annotations:
        if name in _ANNOTATED:
            continue
        if name in _REFUSED:
            if value not in _REFUSED[name]:
                raise NotSupported(
                    f"weft does not support {name}={value!r} of dask.annotate yet: leave it out. "
                    f"It supports {', '.join(KEYWORDS)}"
                )
        elif close := nearest(name, KEYWORDS, _SIMILAR):
            raise UnknownOption(
                f"{name!r} in dask.annotate is none of the annotations that weft supports, which "
                f"are {', '.join(KEYWORDS)}; did you mean {close!r}?"
            )


def _tags_of(annotation: Any) -> tuple[str, ...]:
    """Return the tags in the annotation `span`: a text, several, or what `span` of dask makes.

    Raises:
        TypeError, ValueError: it is something else.
    """
    if isinstance(annotation, Mapping):
        annotation = annotation.get("name")
    if annotation is None:
        return ()
    is_several = isinstance(annotation, Iterable) and not isinstance(annotation, str)
    return check_tags(tuple(annotation) if is_several else (annotation,))


def _make(values: Mapping[str, Any], key: Any, tags: tuple[str, ...]) -> TaskOptions:
    made = {name: value(key) if callable(value) else value for name, value in values.items()}
    span = made.pop(_SPAN, None)
    priority = made.get("priority")
    if isinstance(priority, float) and priority.is_integer():
        made["priority"] = int(priority)
    if made.get("workers") is None:  # an annotation of all tasks may be meant for some of them
        made.pop("allow_other_workers", None)
    try:
        options = make_options(made)
        tags = (*tags, *_tags_of(span))
        return options.changed(span=[*tags[:MAX_SPAN_TAGS]]) if tags else options
    except (TypeError, ValueError) as error:
        if key is not None:
            add_note(error, f"weft: in the annotations of task {key!r}")
        raise
