"""An engine for papermill: `papermill --engine weft in.ipynb out.ipynb` runs it on a worker.

A notebook is one task, whose kernel is a process of the worker. Its cells come back as they end, so
papermill shows the progress, and saves after each cell, as with its own engine. Needs papermill:
`pip install weft[papermill]`.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from typing import TYPE_CHECKING, Any, Final

from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import Engine, NBClientEngine, NotebookExecutionManager
from papermill.log import logger

from ..client import Client, default_client
from ..client.coordination.queue import Queue
from ..protocol.errors import ClientClosed

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["WeftEngine"]

#: How often it is looked whether a notebook from which nothing comes has ended.
_LOOK_S: Final = 0.5


class WeftEngine(Engine):  # type: ignore[misc]  # untyped
    """Runs a notebook on a worker.

    It takes the arguments of papermill's own engine, and `client=`: a blocking client, or the
    address of a scheduler. None: the current client, the cluster of `$WEFT_CONNECTION_FILE`, or
    else a worker that is started for the notebook. `options=` are those of `Client.submit`.
    """

    @classmethod
    def execute_managed_notebook(
        cls,
        nb_man: Any,
        kernel_name: str,
        log_output: bool = False,
        stdout_file: Any = None,
        stderr_file: Any = None,
        client: Client | str | None = None,
        options: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Run the notebook, and give its manager each cell as it begins and ends."""
        reader = PapermillNotebookClient(
            nb_man,
            log=logger,
            log_output=log_output,
            stdout_file=stdout_file,
            stderr_file=stderr_file,
        )
        notes = _Notes(nb_man, reader)
        with _client(client) as opened:
            queue: Queue[Any, Any] = Queue(f"papermill-{uuid.uuid4().hex}", client=opened)
            future = opened.submit(
                _run,
                nb_man.nb,
                kernel_name,
                queue,
                nb_man.autosave_cell_every,
                os.getcwd(),
                kwargs,
                pure=False,
                **(options or {}),
            )
            try:
                while not future.done() or queue.qsize():
                    with contextlib.suppress(TimeoutError):
                        notes.add(*queue.get(timeout=_LOOK_S))
                ended = future.result()
            finally:
                opened.cancel(future, running=True)
                queue.close()
        for here, there in zip(nb_man.nb.cells, ended.cells, strict=True):
            there.metadata.papermill = here.metadata.papermill
        ended.metadata.papermill = nb_man.nb.metadata.papermill
        nb_man.nb = ended


@contextlib.contextmanager
def _client(given: Client | str | None) -> Iterator[Client]:
    if isinstance(given, Client):
        yield given
        return
    if given is None:
        with contextlib.suppress(ClientClosed):
            yield default_client()
            return
    started: dict[str, Any] = {}
    if given is None and not os.environ.get("WEFT_CONNECTION_FILE"):
        started = {"n_workers": 1, "threads_per_worker": 1}
    with Client(given, set_as_default=False, **started) as opened:
        yield opened


class _Notes:
    """Takes over what a worker sends of the cells that it runs."""

    def __init__(self, nb_man: Any, reader: Any) -> None:
        self._nb_man = nb_man
        self._reader = reader
        self._running: int | None = None  #: the cell that has begun last

    def add(self, index: int, cell: Any) -> None:
        """Take over a cell that has begun, goes on, or has ended."""
        nb_man = self._nb_man
        nb_man.nb.cells[index] = cell
        if cell.metadata.papermill["status"] != nb_man.RUNNING:
            for output in cell.get("outputs", ()):
                self._reader.log_output_message(output)
            if cell.metadata.papermill["exception"]:
                nb_man.cell_exception(cell, index)
            nb_man.cell_complete(cell, index)
        elif index == self._running:
            nb_man.save()
        else:
            if index == 0 and nb_man.pbar:
                nb_man.pbar.reset()  # a worker has died, and another one begins again
            self._running = index
            nb_man.cell_start(cell, index)


class _Reporter(NotebookExecutionManager):  # type: ignore[misc]  # untyped
    """Manages the notebook on the worker; in the place of saving, it sends the cell that runs."""

    def __init__(self, nb: Any, queue: Queue[Any, Any], autosave_every_s: float) -> None:
        super().__init__(nb, progress_bar=False, autosave_cell_every=autosave_every_s)
        self._queue = queue
        self._index = 0

    def cell_start(self, cell: Any, cell_index: int = 0, **others: Any) -> None:
        self._index = cell_index
        super().cell_start(cell, cell_index, **others)

    def save(self, **_others: Any) -> None:
        self._queue.put((self._index, self.nb.cells[self._index]))
        self.last_save_time = self.now()


def _run(
    nb: Any,
    kernel_name: str,
    queue: Queue[Any, Any],
    autosave_every_s: float,
    folder: str,
    options: dict[str, Any],
) -> Any:
    """Run a notebook here; return it."""
    if os.path.isdir(folder):
        options = {"resources": {"metadata": {"path": folder}}, **options}
    manager = _Reporter(nb, queue, autosave_every_s)
    NBClientEngine.execute_managed_notebook(manager, kernel_name, **options)
    return nb
