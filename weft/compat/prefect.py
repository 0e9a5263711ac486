"""A task runner for Prefect: `@flow(task_runner=WeftTaskRunner())` runs tasks on a cluster.

A task that is given to another one goes to that as a future of weft: it waits at the scheduler, and
the state stays on the workers. What tasks log, and their states, workers send to Prefect's API
themselves. Needs Prefect: `pip install weft[prefect]`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import uuid
from typing import TYPE_CHECKING, Any

from prefect.context import FlowRunContext, serialize_context
from prefect.futures import PrefectConcurrentFuture
from prefect.task_engine import run_task_async, run_task_sync
from prefect.task_runners import TaskRunner
from prefect.utilities.collections import visit_collection
from prefect.utilities.engine import collect_task_run_inputs_sync

from ..client import Client, default_client, wait
from ..protocol.host.process_role import is_worker_process

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..client import Future
    from ..client.cluster.locating import ClusterLike

__all__ = ["WeftTaskRunner"]


class WeftTaskRunner(TaskRunner):  # type: ignore[misc]  # untyped
    """Submits the tasks of a flow to a cluster.

    Args:
        client: a blocking client, which stays open; or the address of a scheduler or a cluster
            object. None: the cluster of `$WEFT_CONNECTION_FILE`, or else one that is started for
            each run of the flow.
        max_workers: number of workers of the cluster that is started, with one thread each; None:
            as many as there are cores. Not with `client=`.
        options: those of `Client.submit` for each task: resources, priority, workers, ...
    """

    def __init__(
        self,
        client: Client | str | ClusterLike | None = None,
        max_workers: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self._given = client
        self._max_workers = max_workers
        self._options = options
        self._closing = contextlib.ExitStack()
        self._client: Client | None = None
        #: {future: None} of tasks that have not ended: a flow may drop those that it does not read.
        self._pending: dict[Future[Any], None] = {}

    def duplicate(self) -> WeftTaskRunner:
        """Return one of the same settings; Prefect makes one for each run of a flow."""
        return type(self)(self._given, self._max_workers, **self._options)

    def __reduce__(self) -> tuple[Any, ...]:
        # For a task, which submits by the client that it has.
        return functools.partial(type(self), None, self._max_workers, **self._options), ()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, WeftTaskRunner):
            return NotImplemented
        return self._settings() == other._settings()

    __hash__ = TaskRunner.__hash__

    def _settings(self) -> tuple[Any, ...]:
        return self._given, self._max_workers, self._options

    def submit(
        self,
        task: Any,
        parameters: dict[str, Any],
        wait_for: Iterable[Any] | None = None,
        dependencies: dict[str, set[Any]] | None = None,
    ) -> PrefectConcurrentFuture:
        """Submit one task."""
        client = self._opened()
        run_id = uuid.uuid4()
        inputs = {
            name: collect_task_run_inputs_sync(value) | (dependencies or {}).get(name, set())
            for name, value in parameters.items()
        }
        context = serialize_context(
            asset_ctx_kwargs={
                "task": task,
                "task_run_id": run_id,
                "task_inputs": inputs,
                "copy_to_child_ctx": True,
            }
        )
        run_context = FlowRunContext.get()
        url = "" if run_context is None else str(run_context.client.api_url)
        future = client.submit(
            _run,
            task,
            run_id,
            _as_weft(parameters),
            _as_weft([*wait_for]) if wait_for else None,
            inputs,
            context,
            url,
            key=f"{task.name}-{run_id}",
            pure=False,
            **self._options,
        )
        self._pending[future] = None
        future.add_done_callback(self._forget)
        return PrefectConcurrentFuture(run_id, future)

    def _forget(self, future: Future[Any]) -> None:
        self._pending.pop(future, None)

    def _opened(self) -> Client:
        """Return the client, opened now: the runner of a task may never need one."""
        if not self._started:
            raise RuntimeError("The task runner must be started before submitting work.")
        if self._client is None:
            if isinstance(self._given, Client):
                self._client = self._given
            elif is_worker_process():
                self._client = default_client()
            else:
                started: dict[str, Any] = {}
                if self._max_workers is not None:
                    started = {"n_workers": self._max_workers, "threads_per_worker": 1}
                client = Client(self._given, set_as_default=False, **started)
                self._client = self._closing.enter_context(client)
        return self._client

    def __exit__(self, *error: Any) -> None:
        """Wait for the tasks that are left; after an error of the flow, or Ctrl-C, end them."""
        client, self._client = self._client, None
        with self._closing:
            if client is not None and (pending := [*self._pending]):
                if error[0] is None:
                    wait(pending)
                else:
                    client.cancel(pending, running=True)
        super().__exit__(*error)


def _as_weft(given: Any) -> Any:
    """Return what is given with the futures of weft in the place of Prefect's around them."""

    def visit(value: Any) -> Any:
        return value.wrapped_future if isinstance(value, PrefectConcurrentFuture) else value

    return visit_collection(given, visit_fn=visit, return_data=True)


def _run(
    task: Any,
    run_id: uuid.UUID,
    parameters: dict[str, Any],
    wait_for: Any,
    inputs: dict[str, set[Any]],
    context: dict[str, Any],
    url: str,
) -> Any:
    """Run a task of Prefect here; return its state."""
    if url:
        # Without a server of their own, flows start one: its address is in no setting.
        settings = context["settings_context"].setdefault("settings", {})
        settings["api"] = {**settings.get("api", {}), "url": url}
    options = {
        "task": task,
        "task_run_id": run_id,
        "parameters": parameters,
        "wait_for": wait_for,
        "return_type": "state",
        "dependencies": inputs,
        "context": context,
    }
    if task.isasync:
        return asyncio.run(run_task_async(**options))
    return run_task_sync(**options)
