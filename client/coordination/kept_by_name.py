"""The methods of a client for what the scheduler keeps by name: datasets, metadata and events.

The work is in `coordination/`; it is imported with the first call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ..modes import waits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .datasets import DatasetName, Datasets
    from .topics import LoggedEvent

#: Stands for a default that was not given.
_NONE: Final[Any] = object()


class KeptByName:
    """A base class of `Client`. The methods block; those of an asynchronous client are awaited."""

    # --- Datasets ---------------------------------------------------------------------------------

    @waits
    def publish_dataset(
        self,
        /,
        *objects: Any,
        name: DatasetName | None = None,
        override: bool = False,
        **named: Any,
    ) -> None:
        """Keep futures, or values with futures in them, under names that all clients may look up.

        The scheduler keeps the futures alive, whoever releases them, until the dataset is
        unpublished, or the scheduler and this client have ended. Values themselves are small (4 MiB
        at most): large data belongs in the results of tasks.

        Args:
            objects: the dataset `name`; several make a tuple. Without a name, {name: dataset}.
            name: of the dataset: a text, a number, or a tuple of plain data.
            override: replace a dataset of the same name.
            named: further datasets.

        Raises:
            DatasetExists: there is one of this name, and `override` is False.
            TooLarge: the value is too large.
            SerializationError: it cannot be pickled, or a future in it was released.
        """
        from .datasets import publish, wanted

        return publish(self, wanted(objects, name, named), override)

    @waits
    def unpublish_dataset(self, name: DatasetName | Iterable[DatasetName]) -> None:
        """Withdraw a dataset, or a list of several; their futures are released.

        Raises:
            DatasetNotFound: there is none of such a name; nothing is withdrawn.
        """
        from .datasets import unpublish

        return unpublish(self, name)

    @waits
    def list_datasets(self) -> tuple[DatasetName, ...]:
        """Return the names of all datasets, in the order in which they were published."""
        from .datasets import list_names

        return list_names(self)

    def get_dataset(self, name: DatasetName, default: Any = _NONE) -> Any:
        """Return a dataset; the futures in it belong to this client.

        Args:
            name: of the dataset.
            default: what is returned if there is none.

        Raises:
            DatasetNotFound: there is none of this name, and no default.
        """
        from .datasets import get

        return get(self, name, () if default is _NONE else (default,))

    @property
    def datasets(self) -> Datasets:
        """The datasets as a mapping, which can be changed; for blocking clients."""
        from .datasets import Datasets

        return Datasets(self)

    # --- Metadata ---------------------------------------------------------------------------------

    @waits
    def set_metadata(self, key: str | Iterable[str], value: Any) -> None:
        """Set metadata: small plain data in a tree that all clients read and write.

        Args:
            key: a name, or a path of names in the tree. What is missing of it is made, and a value
                that is no dict and stands in its way is replaced.
            value: None, a bool, number, text, bytes, or lists and dicts of these with texts as
                keys. A tuple becomes a list.

        Raises:
            TypeError: it is something else.
            TooLarge: it takes more than 64 KiB, or all metadata more than 2 MiB.
        """
        from .metadata import set_metadata

        return set_metadata(self, key, value)

    def get_metadata(self, keys: str | Iterable[str], default: Any = _NONE) -> Any:
        """Return metadata.

        Args:
            keys: a name, or a path of names; an empty path stands for the whole tree.
            default: what is returned if there is none.

        Raises:
            KeyError: there is none, and no default.
        """
        from .metadata import get_metadata

        return get_metadata(self, keys, () if default is _NONE else (default,))

    @waits
    def delete_metadata(self, keys: str | Iterable[str]) -> None:
        """Delete metadata with all that is below it.

        Args:
            keys: a name, or a path of names; an empty path stands for the whole tree.

        Raises:
            KeyError: there is none.
        """
        from .metadata import delete_metadata

        return delete_metadata(self, keys)

    # --- Events -----------------------------------------------------------------------------------

    @waits
    def log_event(self, topic: str | Iterable[str], msg: Any) -> None:
        """Log an event under a topic, or several, for `get_events` and subscribed handlers.

        The scheduler keeps the last 1 000 events of a topic (4 MiB at most).

        Args:
            topic: a name, or several.
            msg: anything that can be pickled, without futures, of 64 KiB at most.

        Raises:
            TypeError: there is a future in it.
            TooLarge: it is too large.
        """
        from .topics import log_event

        return log_event(self, topic, msg)

    @waits
    def get_events(
        self, topic: str | None = None
    ) -> tuple[LoggedEvent, ...] | dict[str, tuple[LoggedEvent, ...]]:
        """Return the last events of a topic, oldest first, each as `(time, msg)`.

        Args:
            topic: a name; None = all topics, as {topic: events}.
        """
        from .topics import get_events

        return get_events(self, topic)

    @waits
    def subscribe_topic(self, topic: str, handler: Callable[[tuple[float, Any]], Any]) -> None:
        """Call `handler((time, msg))` for each event of a topic that is logged from now on.

        A blocking client calls it in the thread of its callbacks, an asynchronous one in its loop,
        where it may be a coroutine function. Events that come while it runs are kept, and if they
        are too many, the last ones; a warning is logged with the number of the others. A second
        handler of a topic replaces the first.

        Raises:
            TypeError: `handler` is no function, or a coroutine function in a blocking client.
        """
        from .topics import subscribe

        return subscribe(self, topic, handler)

    def unsubscribe_topic(self, topic: str) -> None:
        """End the subscription to a topic.

        Raises:
            ValueError: there is none.
        """
        from .topics import unsubscribe

        unsubscribe(self, topic)
