"""Tests of CPython's pools that `weft.Executor` is not expected to pass, each with its reason."""

from __future__ import annotations

from typing import NamedTuple


class Unexpected(NamedTuple):
    """Tests that fail for one reason."""

    #: The reason, in a sentence: what CPython's pools do, and what weft does.
    reason: str
    tests: tuple[str, ...]
    #: False: not even tried, because a test hangs.
    run: bool = True


LIST = [
    Unexpected(
        "looks at the threads, processes or queues inside a pool; an executor of weft has none, "
        "its workers belong to a cluster",
        (
            "ThreadPoolShutdownTest.test_context_manager_shutdown",
            "ThreadPoolShutdownTest.test_del_shutdown",
            "ThreadPoolShutdownTest.test_shutdown_no_wait",
            "ThreadPoolShutdownTest.test_thread_names_default",
            "ThreadPoolExecutorTest.test_idle_thread_reuse",
            "ProcessPoolShutdownTest.test_context_manager_shutdown",
            "ProcessPoolShutdownTest.test_del_shutdown",
            "ProcessPoolShutdownTest.test_shutdown_no_wait",
            "ProcessPoolExecutorTest.test_idle_process_reuse_multiple",
            "ProcessPoolExecutorTest.test_idle_process_reuse_one",
            "ProcessPoolExecutorTest.test_killed_child",
            "ProcessPoolExecutorTest.test_python_finalization_error",
            "ExecutorDeadlockTest.test_shutdown_deadlock_pickle",
        ),
    ),
    Unexpected(
        "the calls use a lock, an event or a list of the caller; calls on a cluster share no "
        "memory with it (weft.ThreadPool does)",
        (
            "ThreadPoolShutdownTest.test_threads_terminate",
            "ThreadPoolWaitTests.test_pending_calls_race",
            "ThreadPoolExecutorTest.test_executor_map_current_future_cancel",
            "ThreadPoolExecutorTest.test_map_submits_without_iteration",
            "ThreadPoolExecutorTest.test_saturation",
        ),
    ),
    Unexpected(
        "the calls use a semaphore or a manager's proxy, which only children of the process "
        "that made it inherit; workers of a cluster are not its children",
        (
            "ProcessPoolShutdownTest.test_processes_terminate",
            "ProcessPoolExecutorTest.test_ressources_gced_in_workers",
            "ProcessPoolExecutorTest.test_saturation",
        ),
    ),
    Unexpected(
        "thread_name_prefix= and max_tasks_per_child= say how a pool makes its threads and "
        "processes; weft refuses them by name, with what to use, because workers serve many "
        "executors",
        (
            "ThreadPoolShutdownTest.test_thread_names_assigned",
            "ProcessPoolExecutorTest.test_max_tasks_early_shutdown",
            "ProcessPoolExecutorTest.test_max_tasks_per_child",
            "ProcessPoolExecutorTest.test_max_tasks_per_child_defaults_to_spawn_context",
        ),
    ),
    Unexpected(
        "a pool of threads has more threads than cores by default; weft has one worker per core",
        ("ThreadPoolExecutorTest.test_default_workers",),
    ),
    Unexpected(
        "a call submits to its own pool; an executor is not pickled, and tasks make clients "
        "of their own",
        ("ThreadPoolExecutorTest.test_hang_global_shutdown_lock",),
    ),
    Unexpected(
        "a process pool adds the text of a remote traceback as the cause; weft gives the exception "
        "its own traceback, with the frames of the worker",
        (
            "ProcessPoolExecutorTest.test_traceback",
            "ProcessPoolExecutorTest.test_traceback_when_child_process_terminates_abruptly",
        ),
    ),
    Unexpected(
        "a process pool whose process dies is broken and fails all its calls; weft starts another "
        "worker and runs the call again, up to a limit, after which this one fails with WorkerDied",
        (
            "ExecutorDeadlockTest.test_crash_at_task_unpickle",
            "ExecutorDeadlockTest.test_crash_big_data",
            "ExecutorDeadlockTest.test_crash_during_func_exec_on_worker",
            "ExecutorDeadlockTest.test_crash_during_result_pickle_on_worker",
            "ExecutorDeadlockTest.test_shutdown_deadlock",
        ),
    ),
    Unexpected(
        "a process pool that cannot read a call or a result is broken; weft fails that call alone, "
        "with the error of its pickle",
        (
            "ExecutorDeadlockTest.test_error_at_task_unpickle",
            "ExecutorDeadlockTest.test_error_during_result_unpickle_in_result_handler",
            "ExecutorDeadlockTest.test_exit_at_task_unpickle",
            "ExecutorDeadlockTest.test_exit_during_result_unpickle_in_result_handler",
        ),
    ),
    Unexpected(
        "a process pool sets the error of a call that cannot be pickled on its future; weft raises "
        "SerializationError in submit, with the path to what cannot be pickled",
        ("ExecutorDeadlockTest.test_error_at_task_pickle",),
    ),
    Unexpected(
        "a process pool reports a result that cannot be pickled, or a call that exits, by the "
        "exception itself; weft reports it as an error of its own, which names the task",
        (
            "ExecutorDeadlockTest.test_error_during_result_pickle_on_worker",
            "ExecutorDeadlockTest.test_exit_during_func_exec_on_worker",
            "ExecutorDeadlockTest.test_exit_during_result_pickle_on_worker",
        ),
    ),
]

#: {test: its entry}
DESELECTED = {test: entry for entry in LIST for test in entry.tests}
