"""Refuses keywords that a function or weft does not take, and guesses which option was meant."""

from __future__ import annotations

import functools
import inspect
import os
import re
import types
from collections.abc import Callable, Iterable
from typing import Any, Final

from ...protocol.durations import seconds_of
from ...protocol.values.serialize import function_name
from ...protocol.wire.options import KEYWORDS
from ...protocol.wording import nearest
from ..dask.absent_names import ABSENT

_OPTIONS: Final = ("key", "pure", "persist_to", "output", *KEYWORDS)
#: {name that is not similar, or is known from other libraries: what it is here}
_ELSEWHERE: Final = {
    "chunksize": "the option batch_size= of map",
    "retry": "the option retries= of submit and map",
    "cron": "the option cron= of submit, which a map has not: submit one call for each item",
    "timeout": "dask.annotate(timeout=...), since the function takes any keyword",
}
#: As Python's functions and those in C refuse an argument.
_REFUSED: Final = re.compile(
    r"got an unexpected keyword argument '(\w+)'|^'(\w+)' is an invalid keyword argument"
)
_SIMILAR: Final = 0.75
#: {option: values that ask for weft's own behaviour}. Others are refused. Times are in seconds.
_HARMLESS: Final[dict[str, tuple[object, ...]]] = {"direct": (True,), "fifo_timeout": (0.1, 60.0)}


class _NotGiven:
    """The type of `NOT_GIVEN`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<not given>"


#: The default of an option that may be one of the function, too: so None may be meant for that.
NOT_GIVEN: Final = _NotGiven()


def option_of(func: Callable[..., Any], name: str, value: Any, keywords: dict[str, Any]) -> Any:
    """Return the option of a call that was given by a keyword, None if there is none.

    A function that takes such a keyword is given it, as dask does: then it is added to `keywords`.
    """
    names = None if type(func) is functools.partial else _parameters(func)
    takes = _takes(func, name) if names is None else name in names
    if takes:
        keywords[name] = value
        return None
    return value


def _takes(func: Callable[..., Any], name: str) -> bool:
    """Return whether a callable takes a keyword, by its signature; False if it has none.

    For classes, objects and functions with `**keywords`; those of plain functions are remembered.
    """
    code = getattr(func, "__code__", None)
    if code is not None and not hasattr(func, "__wrapped__"):
        return bool(code.co_flags & inspect.CO_VARKEYWORDS)
    try:
        parameters = inspect.signature(func).parameters.values()
    except (TypeError, ValueError):
        return False
    kinds = {p.kind for p in parameters if p.name == name or p.kind is p.VAR_KEYWORD}
    by_keyword = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    return not kinds.isdisjoint((*by_keyword, inspect.Parameter.VAR_KEYWORD))


def meant_option(text: str) -> str:
    """Return what was probably meant, by the text of a TypeError; "" = it is not known."""
    found = _REFUSED.search(text)
    return "" if found is None else _option_like(found[1] or found[2])


def _option_like(name: str) -> str:
    if name in _ELSEWHERE:
        return _ELSEWHERE[name]
    close = nearest(name, _OPTIONS, _SIMILAR)
    return f"the option {close}= of submit and map" if close else ""


def _executor_option_like(name: str) -> str:
    close = nearest(name, KEYWORDS, _SIMILAR)
    return f"the option {close}= of weft.Executor, which holds for all calls" if close else ""


def check_keywords(
    func: Callable[..., Any], keywords: Iterable[str], *, of_executor: bool = False
) -> None:
    """Raise TypeError if the function certainly does not take one of these keywords."""
    names = _parameters(func)
    if names is not None:
        for name in keywords:
            if name not in names:
                check_no_option_of_ray(func, [name])
                meant = _executor_option_like(name) if of_executor else _option_like(name)
                raise unexpected(function_name(func), name, names, meant)


def check_no_option_of_ray(func: Callable[..., Any], keywords: Iterable[str]) -> None:
    """Raise TypeError, with advice, for an option of Ray that the function does not take itself."""
    for name in keywords:
        instead = ABSENT["Ray()"].get(name)
        if instead is not None and not _takes(func, name):
            raise TypeError(f"{function_name(func)} has no parameter {name!r}: {instead}")


def checkpointed(
    func: Callable[..., Any], keywords: Iterable[str], url: str | os.PathLike[str]
) -> Callable[..., Any]:
    """Return the function with files for its results; see `Checkpointed`."""
    from ...protocol.values.checkpoints import Checkpointed

    check_keywords(func, keywords)
    return Checkpointed(func, url)


def printing(func: Callable[..., Any], keywords: dict[str, Any], output: Any) -> Callable[..., Any]:
    """Return the function with a place for what it prints; see `with_output`.

    A function that takes the keyword is given it instead: it is added to `keywords` then.
    """
    place = option_of(func, "output", output, keywords)
    if place is None:
        return func
    from ...protocol.values.printed import with_output

    check_keywords(func, keywords)
    return with_output(func, place)


def unexpected(function: str, name: str, names: Iterable[str], meant: str = "") -> TypeError:
    """Return the error for a keyword that a function does not take.

    Args:
        function: its name.
        name: the keyword.
        names: those that it takes.
        meant: what was probably meant; by default the name that is most like it.
    """
    if not meant and (close := nearest(name, names, _SIMILAR)):
        meant = f"{close}="
    hint = f"; did you mean {meant}?" if meant else ""
    return TypeError(f"{function}() got an unexpected keyword argument {name!r}{hint}")


def _parameters(func: Any) -> frozenset[str] | None:
    """Return the names that a function takes as keywords; None = any, or it is not known."""
    while type(func) is functools.partial:
        func = func.func
    if type(func) is types.MethodType:
        func = func.__func__
    if type(func) is types.FunctionType:
        return _parameters_of_code(func.__code__)
    return _parameters_of_builtin(func) if type(func) is types.BuiltinFunctionType else None


@functools.lru_cache(maxsize=1024)
def _parameters_of_code(code: types.CodeType) -> frozenset[str] | None:
    if code.co_flags & inspect.CO_VARKEYWORDS:
        return None
    n_named = code.co_argcount + code.co_kwonlyargcount
    return frozenset(code.co_varnames[code.co_posonlyargcount : n_named])


@functools.lru_cache(maxsize=256)
def _parameters_of_builtin(func: types.BuiltinFunctionType) -> frozenset[str] | None:
    try:
        parameters = inspect.signature(func).parameters.values()
    except (TypeError, ValueError):  # it has none
        return None
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return frozenset(
        p.name for p in parameters if p.kind not in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL)
    )


def check_unsupported(**options: object) -> None:
    """Refuse options of dask that would otherwise be silently ignored.

    A false value is allowed, and so is a value that asks for weft's own behaviour (`_HARMLESS`).
    """
    for name, value in options.items():
        if name in _HARMLESS:
            if value is None:
                continue
            given = seconds_of(value, name) if name == "fifo_timeout" else value
            if given not in _HARMLESS[name]:
                raise _unsupported(name, f"; leave {value!r} out")
        elif not _is_false(value):
            raise _unsupported(name)


def _unsupported(name: str, more: str = "") -> TypeError:
    return TypeError(f"{name}= is not supported by weft{more}: {ABSENT['submit()'][name]}")


def _is_false(value: object) -> bool:
    try:
        return not value
    except Exception:  # collections of dask and arrays have no truth
        return False
