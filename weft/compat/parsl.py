"""An executor for Parsl: `parsl.load(Config(executors=[WeftExecutor()]))` runs apps on weft.

Each app is one task. Parsl keeps the graph, retries, memoization and files; weft has the workers.
What `parsl_resource_specification` asks of an app becomes options of its task. Needs Parsl:
`pip install parsl`.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

from parsl.executors.base import ParslExecutor
from parsl.executors.errors import InvalidResourceSpecification
from parsl.utils import RepresentationMixin

from ..client import Client
from ..client.executor import Executor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..client.cluster.locating import ClusterLike

__all__ = ["WeftExecutor"]

#: {key of a resource specification: the option of the task that it becomes}.
_OPTIONS: Final[dict[str, Callable[[Any], dict[str, Any]]]] = {
    "cores": lambda n: {"cores": n},
    "memory": lambda megabytes: {"memory": f"{megabytes} MB"},
    "gpus": lambda n: {"resources": {"GPU": n}},
    "priority": lambda n: {"priority": n},
}


class WeftExecutor(ParslExecutor, RepresentationMixin):  # type: ignore[misc]  # untyped
    """Runs the apps of Parsl on the workers of a cluster.

    Args:
        label: the name by which apps choose this executor.
        client: a blocking client, which stays open; or the address of a scheduler or a cluster
            object. None: the cluster of `$WEFT_CONNECTION_FILE`, or else one that starts with Parsl
            and ends with it.
        max_workers: number of workers of the cluster that is started, with one thread each; None:
            as many as there are cores. Not with `client=`.
        storage_access: how Parsl stages files, as for its own executors.
        working_dir: where Parsl stages files, as for its own executors.
    """

    def __init__(
        self,
        label: str = "weft",
        client: Client | str | ClusterLike | None = None,
        max_workers: int | None = None,
        storage_access: Sequence[Any] | None = None,
        working_dir: str | None = None,
    ) -> None:
        super().__init__()
        if client is not None and max_workers is not None:
            raise ValueError(
                "max_workers= is the number of workers of a new cluster, and client= is one that "
                "has its own: leave one of the two out"
            )
        self.label = label
        self.client = client
        self.max_workers = max_workers
        self.storage_access = storage_access
        self.working_dir = working_dir
        self._opened: Client | None = None
        #: {options of tasks, as text: the executor that has them}.
        self._executors: dict[str, Executor] = {}

    def start(self) -> None:
        """Connect to the cluster, or start one."""
        if isinstance(self.client, Client):
            self._opened = self.client
        else:
            started: dict[str, Any] = {}
            if self.max_workers is not None:
                started = {"n_workers": self.max_workers, "threads_per_worker": 1}
            self._opened = Client(self.client, set_as_default=False, **started)

    def submit(
        self,
        func: Callable[..., Any],
        resource_specification: Mapping[str, Any],
        *args: Any,
        **kwargs: Any,
    ) -> Future[Any]:
        """Run an app on a worker; return its future.

        Raises:
            InvalidResourceSpecification: it asks for what weft does not give.
        """
        options = _options_of(resource_specification)
        key = repr(sorted(options.items()))
        executor = self._executors.get(key)
        if executor is None:
            executor = self._executors[key] = Executor(client=self._opened, **options)
        return executor.submit(func, *args, **kwargs)

    def shutdown(self) -> None:
        """Cancel the apps that have not begun, and end the cluster that was started, with the rest.

        On a cluster that goes on, apps that run come to their end, and the program waits for it.
        """
        for executor in self._executors.values():
            executor.shutdown(wait=False, cancel_futures=True)
        opened, self._opened = self._opened, None
        if opened is not None and opened is not self.client:
            opened.close()
        super().shutdown()


def _options_of(specification: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a task by what Parsl's apps ask for.

    Raises:
        InvalidResourceSpecification: there is no such option, or it has no such value.
    """
    unknown = specification.keys() - _OPTIONS.keys()
    if unknown:
        known = ", ".join(_OPTIONS)
        raise InvalidResourceSpecification(unknown, f"WeftExecutor knows {known} (memory in MB)")
    options: dict[str, Any] = {}
    for name, value in specification.items():
        options |= _OPTIONS[name](value)
    return options
