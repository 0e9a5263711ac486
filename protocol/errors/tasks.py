"""The errors of tasks that have no result."""

from __future__ import annotations

from concurrent.futures import CancelledError

from ..death_facts import DeathFacts
from ..wording import counted, sized
from .base import WeftError
from .remedies import with_remedy


class TaskError(WeftError):
    """A task has no result, and no exception of its own that can be raised here.

    Subclasses name the reason. `key` is the task's key and always the first argument.
    """

    def __init__(self, key: str | tuple[object, ...], *fields: object) -> None:
        super().__init__(key, *fields)
        self.key = key

    def __str__(self) -> str:
        return f"task {self.key!r} has no result"


class TaskErred(TaskError):
    """The task raised an exception that could not be sent here, except for its type and text.

    The exception refers to something that cannot be pickled, or its class cannot be imported here.
    Install the module that defines it on this machine too, or raise an exception of a simpler type.

    Args:
        key: the task's key.
        type_name: qualified name of the exception's type on the worker.
        text: its message on the worker.
    """

    def __init__(self, key: str, type_name: str, text: str) -> None:
        super().__init__(key, type_name, text)
        self.type_name = type_name
        self.text = text

    def __str__(self) -> str:
        raised = f"{self.type_name}: {self.text}" if self.text else self.type_name
        return f"task {self.key!r} raised {raised}"


class WorkerDied(TaskError):
    """More workers died while they ran this task than is allowed, so it was given up.

    Most often the task needs more memory than a worker has, or calls native code that crashes; the
    reason says which, and the facts have the last lines of that worker's log. Give workers more
    memory, split the task, or try it in this process with `Client(processes=False)`.

    Args:
        key: the task's key.
        attempts: number of started attempts that ended with the death of their worker.
        last_worker: name or address of the worker that died last.
        reason: how that worker ended (exit code or signal, memory), "" if unknown.
        facts: what is known of that worker beside it: `facts.peak_nbytes`, its largest memory;
            `facts.n_oom_kills`, by the kernel in its control group; `facts.held_most`, results
            that it held, `(function, n_results, nbytes)`; `facts.last_lines` of its log.
    """

    def __init__(
        self,
        key: str,
        attempts: int,
        last_worker: str,
        reason: str = "",
        facts: DeathFacts | None = None,
    ) -> None:
        facts = DeathFacts() if facts is None else facts
        super().__init__(key, attempts, last_worker, reason, facts)
        self.attempts = attempts
        self.last_worker = last_worker
        self.reason = reason
        self.facts = facts

    def __str__(self) -> str:
        why = f": {self.reason}" if self.reason else ""
        more = str(self.facts)
        more = f"\n{more}" if more else ""
        if self.attempts == 1:
            return f"{self.last_worker} died while it ran task {self.key!r}{why}{more}"
        died = f"its worker died {self.attempts} times, last on {self.last_worker}"
        return f"task {self.key!r} was given up: {died}{why}{more}"


class TaskCancelled(TaskError, CancelledError):
    """The task was cancelled by `cancel`, or because the client that wanted it was closed.

    Submit it again if you still want it. This is also a `concurrent.futures.CancelledError`.

    Args:
        key: the task's key.
        reason: why it was cancelled, "" if the user did.
    """

    def __init__(self, key: str, reason: str = "") -> None:
        super().__init__(key, reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"task {self.key!r} was cancelled" + (f": {self.reason}" if self.reason else "")


class NoWorker(TaskError):
    """No connected worker could run the task for as long as it may wait for one.

    That is its `no_worker_timeout=`, or else the setting `scheduler.no-worker-timeout`. Start a
    worker that can, change what the task asks for, or leave both out: then it waits.

    Args:
        key: the task's key.
        seconds: how long it has waited.
        reason: what workers lack.
    """

    def __init__(self, key: str, seconds: float, reason: str) -> None:
        super().__init__(key, seconds, reason)
        self.seconds = seconds
        self.reason = reason

    def __str__(self) -> str:
        return f"no worker could run task {self.key!r} for {self.seconds:g} s: {self.reason}"


class GangEnded(TaskError):
    """Another task of the same gang has failed, so this one was ended with it.

    `__cause__` is the error of the one that failed first: look there for the reason.

    Args:
        key: the key of the task that failed first.
        rank: its rank.
        size: the number of tasks in the gang.
        reason: how it failed.
    """

    def __init__(self, key: str, rank: int, size: int, reason: str) -> None:
        super().__init__(key, rank, size, reason)
        self.rank = rank
        self.size = size
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"the gang ended, because task {self.key!r}, rank {self.rank} of {self.size}, failed "
            f"first: {self.reason}"
        )


class RowsFailed(TaskError):
    """All rows of an array have ended, and some have not succeeded.

    `weft output KEY/NUMBER` and `client.job_result("KEY/NUMBER")` show why a row has failed, and
    `weft retry KEY` runs again all that have not succeeded, with the results of the others kept.

    Args:
        key: the key of the array.
        n_failed: how many rows have failed, were cancelled or are lost.
        n_rows: how many there are.
        first: the numbers of the first of them, in a text.
    """

    def __init__(self, key: str, n_failed: int, n_rows: int, first: str) -> None:
        super().__init__(key, n_failed, n_rows, first)
        self.n_failed = n_failed
        self.n_rows = n_rows
        self.first = first

    def __str__(self) -> str:
        rows = counted(self.n_rows, "row")
        return f"{self.n_failed} of {rows} of array {self.key!r} have not succeeded: {self.first}"


class UserLimit(TaskError):
    """The scheduler has not accepted the task, because its user has too many tasks there.

    Or it is one of a gang with more tasks than may run at a time. Nothing was done. Wait for
    results and release their futures, submit in smaller parts, or put large arguments into the
    cluster with `scatter`; then submit again. Tasks that were accepted before go on.

    Args:
        key: the key of the first of the tasks that were not accepted.
        user: the name of the user; "" = the client, whose token carries none.
        setting: the limit's name in the section `[scheduler]` of the settings.
        limit: tasks, or bytes.
        n_tasks: how many tasks of the user the scheduler has, or a gang that is larger than the
            limit of running ones.
        nbytes: the size of their arguments.
    """

    def __init__(
        self, key: str, user: str, setting: str, limit: int, n_tasks: int, nbytes: int
    ) -> None:
        super().__init__(key, user, setting, limit, n_tasks, nbytes)
        self.user = user
        self.setting = setting
        self.limit = limit
        self.n_tasks = n_tasks
        self.nbytes = nbytes

    def __str__(self) -> str:
        who = f"user {self.user}" if self.user else "this client"
        limit = counted(self.limit, "task")
        if self.setting.endswith("memory"):
            limit = f"{sized(self.limit)} ({self.limit} bytes, 1 KiB for each task among them)"
        if self.setting.endswith("running"):
            return (
                f"task {self.key!r} was not accepted: it is one of a gang of {self.n_tasks}, which "
                f"begin together, and the limit of the running tasks of {who}, "
                f"scheduler.{self.setting}, is {self.limit}"
            )
        return (
            f"task {self.key!r} was not accepted, nor those submitted with it: the scheduler has "
            f"{counted(self.n_tasks, 'task')} of {who} with {self.nbytes} bytes of arguments, and "
            f"the limit of a user, scheduler.{self.setting}, is {limit}. Wait for results and "
            "release their futures, or put large arguments into the cluster with scatter(), and "
            "submit again"
        )


class JobNotRecorded(TaskError):
    """A detached job was not accepted: the journal of the scheduler has not recorded it.

    Start the scheduler with a state directory, or make room on its disk; or submit without
    `detached=True`.

    Args:
        key: the task's key.
        reason: why.
    """

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(key, reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"job {self.key!r} was not recorded, so it was not accepted: {self.reason}"


class TaskTimedOut(TaskError, TimeoutError):
    """An attempt to run the task took longer than its `timeout=` allows, and was interrupted.

    Without a `timeout=` of its own, `max_wall_time=` of its category counts.
    It is given up when the retries of the task are used up as well. Give it more time, or less to
    do. This is a `TimeoutError`, too: so is the one by which `result(timeout=...)` ends a wait.

    Args:
        key: the task's key.
        function: the name of its function.
        timeout_s: its limit, seconds.
        worker: the name of the worker of the last attempt.
        text: how the attempt is ended, and how many others failed before it.
        category: the name of the category whose `max_wall_time=` the limit is; "" = of none.
    """

    def __init__(
        self,
        key: str,
        function: str,
        timeout_s: float,
        worker: str,
        text: str,
        category: str = "",
    ) -> None:
        super().__init__(key, function, timeout_s, worker, text, category)
        self.function = function
        self.timeout_s = timeout_s
        self.worker = worker
        self.text = text
        self.category = category

    def __str__(self) -> str:
        limit = f"its timeout={self.timeout_s:g} s"
        if self.category:
            limit = f"max_wall_time={self.timeout_s:g} s of its category {self.category!r}"
        return (
            f"task {self.key!r} (function {self.function}) ran on {self.worker} for longer than "
            f"{limit}: {self.text}"
        )


class DataLost(TaskError):
    """The only copy of a result was lost, and it cannot be computed again.

    The task, or a task whose result it needs, was released meanwhile, so nothing is left to compute
    the result from: submit the call again. Or it was scattered: scatter it again, with
    `broadcast=2` to have two copies.

    Args:
        key: the task's key.
        reason: how the result was lost, "" if unknown.
    """

    def __init__(self, key: str, reason: str = "") -> None:
        super().__init__(key, reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"the data of {self.key!r} was lost" + (f": {self.reason}" if self.reason else "")


class MemoryExceeded(TaskError):
    """The memory of the workers is full, and this result would not have fitted, or had to give way.

    Or the task runs in a process of its own (`--isolate`), which took more than its worker may.
    Release results that are not needed any more, or let tasks reduce them, so that fewer are in
    memory at the same time; make the pieces smaller; or have more workers, or more memory for each.
    Submitting the call again runs it again.

    Args:
        key: the task's key.
        text: what the workers use, what the results of this client take, and what to do.
    """

    def __init__(self, key: str, text: str) -> None:
        super().__init__(key, text)
        self.text = text

    def __str__(self) -> str:
        return f"{self.key!r} was given up: {self.text}"


class AllotmentExceeded(TaskError):
    """The task has used more memory than any task of its category may, and was ended.

    Give the category a larger `max_memory=`, or none, so that a task may use a whole worker; have
    workers with more memory; or let each task do less.

    Args:
        key: the task's key.
        category: the name of its category.
        allotted_nbytes: what it might use.
        used_nbytes: what it used when it was ended.
        worker: the name of the worker that ran it.
        limit: what has set that limit: the category's `max_memory`, or the largest worker.
    """

    def __init__(
        self,
        key: str,
        category: str,
        allotted_nbytes: int,
        used_nbytes: int,
        worker: str = "",
        limit: str = "",
    ) -> None:
        super().__init__(key, category, allotted_nbytes, used_nbytes, worker, limit)
        self.category = category
        self.allotted_nbytes = allotted_nbytes
        self.used_nbytes = used_nbytes
        self.worker = worker
        self.limit = limit

    def __str__(self) -> str:
        used, allotted = self.used_nbytes, self.allotted_nbytes
        return (
            f"task {self.key!r} used {sized(used)} of memory ({used} bytes) at worker "
            f"{self.worker}, and one of category {self.category!r} may use {sized(allotted)} "
            f"({allotted} bytes), {self.limit}"
        )


class UnpicklableResult(TaskError):
    """The task finished, but its result cannot be pickled and so cannot leave its worker.

    Return plain data instead: the content of a file, not the open file; rows, not the database
    connection. If its pickle does not fit into the worker's memory, the text gives the sizes.

    Args:
        key: the task's key.
        type_name: qualified name of the type that cannot be pickled.
        text: pickle's message, and the path to the object within the result.
    """

    def __init__(self, key: str, type_name: str, text: str) -> None:
        super().__init__(key, type_name, text)
        self.type_name = type_name
        self.text = text

    def __str__(self) -> str:
        text = f"the result of task {self.key!r} cannot be pickled ({self.type_name}): {self.text}"
        return with_remedy(text, self.type_name)
