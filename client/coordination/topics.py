"""Topics: events that are logged under a name, read, and given to handlers as they come."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ...protocol.values.serialize import loads
from ...protocol.wire.messages import Operated
from ...protocol.wire.messages.coordination import TOPIC
from ...protocol.wire.plain import unpack
from ..core.features.coordination import CallAbandoned, ObjectCall
from ..core.tasks import Watcher
from ..modes import waits
from ..shell.both_ways import blocks_here, result_of
from .coordination_object import CoordinationObject, check_name, names_in, nothing
from .object_values import packed

if TYPE_CHECKING:
    from ..shell.engine import Engine

logger: Final = logging.getLogger("weft.client")

#: Events of a topic that the scheduler keeps.
_N_KEPT: Final = 1_000
#: The time at which it was logged, and what.
LoggedEvent: TypeAlias = "tuple[float, Any]"
Handler = Callable[[LoggedEvent], Any]


class _Topic(CoordinationObject[Any]):
    _KIND = TOPIC


def _topic(client: Any, name: str) -> _Topic:
    check_name(name, "topic")
    return _Topic(name, client)


@waits
def log_event(client: Any, topic: str | Iterable[str], msg: Any) -> None:
    """Log an event under a topic, or several, for `get_events` and subscribed handlers.

    The scheduler keeps the last 1 000 events of a topic (4 MiB at most).

    Args:
        topic: a name, or several.
        msg: anything that can be pickled, without futures, of 64 KiB at most.

    Raises:
        TypeError: there is a future in it.
        TooLarge: it is too large.

    Example:
        >>> client.log_event("losses", 0.25)
        >>> [message for _, message in client.get_events("losses")]
        [0.25]
    """
    topics = [_topic(client, name) for name in dict.fromkeys(names_in(topic, "topic"))]
    if not topics:
        raise ValueError("log_event needs the name of a topic")
    engine = client._running()
    blob, keys = packed(engine, msg)
    if keys:
        raise TypeError(
            "an event has no futures in it: put them into a weft.Queue or weft.Variable, or use "
            "publish_dataset"
        )
    arguments = {"time": time.time()}

    async def log() -> None:
        for each in topics:
            await each._do("log", nothing, arguments, values=[blob])

    return result_of(engine, log)


@waits
def get_events(
    client: Any, topic: str | None = None
) -> tuple[LoggedEvent, ...] | dict[str, tuple[LoggedEvent, ...]]:
    """Return the last events of a topic, oldest first, each as `(time, msg)`.

    Args:
        topic: a name; None = all topics, as {topic: events}.
    """
    if topic is not None:
        return result_of(client._running(), lambda: events_of(client, topic))
    return result_of(client._running(), lambda: _events_of_all(client))


def events_of(client: Any, topic: str) -> Coroutine[Any, Any, tuple[LoggedEvent, ...]]:
    """Do what `get_events` does, in a coroutine."""
    return _topic(client, topic)._do("all", _events)


async def events_after(
    client: Any, topic: str, number: int | None
) -> tuple[list[LoggedEvent], int, bool]:
    """Return the events after the one of a number, the last number, and whether some were missed.

    Without a number only the last one is returned, to go on from there. A look at a topic to which
    nothing has come transfers no event.
    """
    found = _topic(client, topic)
    last = await found._do("last", _last_number)
    if number is None or last <= number:
        return [], last, False
    numbered = await found._do("all", _numbered_events)
    events = [event for at, event in numbered if at > number]
    # After a restart of the scheduler numbers go on with a gap, which is no loss.
    is_cut = len(events) >= _N_KEPT and numbered[0][0] > number + 1
    return events, max([last, *(at for at, _ in numbered)]), is_cut


async def _events_of_all(client: Any) -> dict[str, Any]:
    names = await _topic(client, "all")._do("names", _names)
    return {name: await events_of(client, name) for name in names}


@waits
def subscribe_topic(client: Any, topic: str, handler: Handler) -> None:
    """Call `handler((time, msg))` for each event of a topic that is logged from now on.

    A blocking client calls it in the thread of its callbacks, an asynchronous one in its loop,
    where it may be a coroutine function. Events that come while it runs are kept, and if they
    are too many, the last ones; a warning is logged with the number of the others. A second
    handler of a topic replaces the first.

    Raises:
        TypeError: `handler` is no function, or a coroutine function in a blocking client.
    """
    found = _topic(client, topic)
    if not callable(handler):
        raise TypeError(f"a handler of events is a function, not {type(handler).__name__}")
    # Of an object that is called, its method.
    called = handler if inspect.isroutine(handler) else type(handler).__call__
    is_coroutine = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(called)
    if is_coroutine and not client.is_in_callers_loop:
        raise TypeError(
            "a handler that is a coroutine function needs a client with asynchronous=True"
        )
    engine = client._running()

    def begin(_engine: Engine, answer: Operated) -> None:
        _end(engine, topic)
        subscription = _Subscription(engine, topic, handler, answer.info["last"])
        engine.subscriptions[topic] = subscription
        subscription.ask()

    return found._call("last", begin)


def unsubscribe_topic(client: Any, topic: str) -> None:
    """End the subscription to a topic.

    Raises:
        ValueError: there is none.
    """
    check_name(topic, "topic")
    if not _end(client._running(), topic):
        raise ValueError(f"this client is not subscribed to topic {topic!r}")


def _end(engine: Engine, topic: str) -> bool:
    subscription = engine.subscriptions.pop(topic, None)
    if subscription is None:
        return False
    subscription.end()
    return True


class _Subscription(Watcher):
    """A call that waits for events, again and again.

    The next one is sent when the handler is done with those of the last: those that come meanwhile
    are in the scheduler, which bounds their number.
    """

    __slots__ = ("_call", "_engine", "_handler", "_is_over", "_last", "_tasks", "_topic")

    def __init__(self, engine: Engine, topic: str, handler: Handler, last: int) -> None:
        super().__init__(wants_data=False)
        self._engine = engine
        self._topic = topic
        self._handler = handler
        #: Number of the last event that came.
        self._last = last
        self._is_over = False
        self._call: ObjectCall | None = None
        #: Of an asynchronous handler; the loop holds weak references only.
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(self) -> None:
        """Wait for events."""
        call = self._call = ObjectCall(self, TOPIC, self._topic, "next", {"after": self._last})
        if self._has_ended():
            return
        self._engine.post(call)
        if self._has_ended():  # by another thread, between the look and the post
            self._engine.post(CallAbandoned(call))

    def _has_ended(self) -> bool:
        return self._is_over or self._engine.is_gone

    def end(self) -> None:
        """Wait no more."""
        self._is_over = True
        if self._call is not None and not self._engine.is_gone:
            self._engine.post(CallAbandoned(self._call))

    def on_ready(self, items: list[Any]) -> None:
        """See `Watcher`."""
        answer = items[-1]
        if isinstance(answer, Operated) and not answer.problem:
            self._engine.call_back(self._deliver, answer)
        elif answer is not None:
            text = getattr(answer, "text", "") or "the token of this client does not permit it"
            logger.warning("the subscription to topic %r has ended: %s", self._topic, text)

    def _deliver(self, answer: Operated) -> None:
        self._last = answer.info["numbers"][-1]
        n_missed = answer.info.get("n_missed")
        if n_missed and not self._is_over:
            logger.warning(
                "%d events of topic %r were missed: its handler is slow, or they came too fast",
                n_missed,
                self._topic,
            )
        if self._engine.is_in_callers_loop:
            task = asyncio.get_running_loop().create_task(self._handle(answer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            result_of(self._engine, lambda: self._handle(answer), asynchronous=False)

    async def _handle(self, answer: Operated) -> None:
        try:
            for i in range(len(answer.values)):
                if self._is_over:
                    return
                try:
                    found = self._handler(_event(answer, i))
                    if inspect.isawaitable(found) and not blocks_here():
                        await found
                except Exception:
                    text = "the handler of topic %r raised: %r"
                    logger.exception(text, self._topic, self._handler)
        finally:
            self.ask()


def _event(answer: Operated, i: int) -> tuple[float, Any]:
    blob = answer.values[i]
    assert blob is not None, "each event has a value"
    # The scheduler, which pickles nothing, packs its own events.
    msg = unpack(blob) if answer.info.get("are_plain") else loads(blob)
    return answer.info["times"][i], msg


def _last_number(_engine: Engine, answer: Operated) -> int:
    last: int = answer.info["last"]
    return last


def _numbered_events(engine: Engine, answer: Operated) -> list[tuple[int, LoggedEvent]]:
    return [*zip(answer.info["numbers"], _events(engine, answer), strict=True)]


def _events(_engine: Engine, answer: Operated) -> tuple[tuple[float, Any], ...]:
    return tuple(_event(answer, i) for i in range(len(answer.values)))


def _names(_engine: Engine, answer: Operated) -> list[str]:
    names: list[str] = answer.info["names"]
    return names
