"""The exception tree: every class can be pickled, and its text names the facts."""

from __future__ import annotations

import concurrent.futures
import copy
import pickle
import subprocess
import sys

import pytest

from weft.protocol import errors
from weft.protocol.death_facts import DeathFacts, HeldResults
from weft.protocol.errors import WeftError

DEATH = DeathFacts(300 << 20, 1, (HeldResults("load", 3, 200 << 20),), ("a line of its log",))

EXAMPLES = [
    errors.WeftError("it broke"),
    errors.ActorLost("Counter-1", "is lost with its worker"),
    errors.ActorCallInDoubt("Counter-1", "may have run add()"),
    errors.CommandFailed(errors.CommandResult("sort x", 2, b"out", b"no x"), ("sorted",)),
    errors.CommandFailed(errors.CommandResult("sort x", -11)),
    errors.CommandFailed(errors.CommandResult("sort x", 127)),
    errors.CommandFailed(errors.CommandResult("sort x", -15, wall_s=2.1, is_late=True)),
    errors.ProtocolError("bad frame", "tcp://a:1"),
    errors.LocalProtocolError("frame too large"),
    errors.RemoteProtocolError("frame too large", "tcp://a:1"),
    errors.HandshakeError("no hello", "tcp://a:1"),
    errors.WrongToken(),
    errors.WrongToken("not ours", "tcp://a:1"),
    errors.WrongVersion("we speak 1 to 2, the peer 3 to 4", "tcp://a:1"),
    errors.WrongCluster("cluster ab expected, cd found", "tcp://a:1"),
    errors.WrongRole("a worker answered", "tcp://a:1"),
    errors.NotAdmitted("Python 3.12 here, Python 3.11 there", "tcp://a:1"),
    errors.NotPermitted("shutdown()", "admin", "client"),
    errors.Reschedule("too warm"),
    errors.InitializerFailed("connect", "ValueError: no database"),
    errors.StaleEpoch(7, 6, "tcp://a:1"),
    errors.UnsupportedRequest("this question", "the scheduler"),
    errors.PluginFailed("noting", "ValueError: no"),
    errors.TakenOver("a later scheduler runs"),
    errors.CommError("no route to host", "tcp://a:1"),
    errors.CommClosed(),
    errors.CommClosed("reset by peer", "tcp://a:1"),
    errors.ConnectTimeout("nobody answered", "tcp://a:1", 2.5),
    errors.ConnectTimeout("nobody answered"),
    errors.ConnectRefused("no process listens", "tcp://a:1"),
    errors.StuckPeer("300 MB wait for it", "tcp://a:1"),
    errors.ConfigError("must be a number of bytes, not 'many'", "--memory-limit"),
    errors.InvalidAmount("'8 bananas' is not a size", "memory"),
    errors.InvalidDuration("'soon' is not a time", "timeout"),
    errors.InvalidSchedule("'61 * * * *': bad minute", "cron"),
    errors.TaskError("inc-1"),
    errors.TaskErred("inc-1", "mylib.Oops", "no such thing"),
    errors.WorkerDied("inc-1", 3, "worker-2", "killed by signal 9"),
    errors.WorkerDied("inc-1", 3, "worker-2", "killed by signal 9", DEATH),
    errors.TaskCancelled("inc-1", "the client was closed"),
    errors.DataLost("data-1", "its only worker died"),
    errors.AllotmentExceeded("fit-3", "fits", 1 << 30, 3 << 29, "w0", "its max_memory="),
    errors.MemoryExceeded("load-7", "w0 uses 330 of 381 MiB; release results"),
    errors.NoWorker("inc-1", 2.5, "no worker offers GPU: 1"),
    errors.GangEnded("train-1", 1, 4, "ValueError: no such file"),
    errors.RowsFailed("sim-1", 2, 1000, "7, 12"),
    errors.UserLimit("inc-1", "ann", "user-memory", 1 << 30, 5000, 1 << 30),
    errors.UserLimit("g-0", "ann", "user-running", 2, 3, 0),
    errors.JobNotRecorded("inc-1", "the disk is full"),
    errors.TaskTimedOut("inc-1", "inc", 2.5, "worker-2", "it is interrupted"),
    errors.UnpicklableResult("inc-1", "_thread.lock", "cannot pickle it"),
    errors.SerializationError("argument args[1].conn of load", "_thread.lock", "cannot pickle it"),
    errors.ForeignFuture("the future of 'inc-1' belongs to the cluster at tcp://a:1"),
    errors.ClientClosed(),
    errors.NotInTask("only in tasks"),
    errors.WorkerStartTimeout(4, 1, 30.0),
    errors.GraphError("a graph is a mapping of keys to tasks, not int"),
    errors.GraphCycle(["a", ("b", 1), "a"]),
    errors.MissingKey(("a", 1)),
    errors.MissingKey("a", "b"),
    errors.WrongExecutor("5 is no concurrent.futures.Executor"),
    errors.NotSupported("x.persist() is not supported yet"),
    errors.UnknownOption("there is no option 'num_worker'"),
    errors.QuestionFailed("the scheduler has no question 'x'"),
    errors.QuestionFailed("it does not run it", "worker-1"),
    errors.HeldError("the queue is full of values"),
    errors.AlreadyHeld("lock 'x' is held by this thread"),
    errors.NotHeld("lock 'x' is not held by this object"),
    errors.HoldLost("lock 'x' was given to another holder"),
    errors.HeldClosed("queue 'x' was closed"),
    errors.OtherLimit("semaphore 'x' has max_leases=2"),
    errors.WaitingCycle("task 'a' would wait for ever"),
    errors.TooLarge("the value takes 5000000 bytes"),
    errors.DatasetExists("there is a dataset 'x' already"),
    errors.DatasetNotFound("there is no dataset 'x'"),
    errors.ValueNotRecorded("put of queue 'x' is not recorded: the disk is full"),
    errors.NoAnswer("it did not answer within 10 s", "worker-1"),
    errors.UnknownWorker("no connected worker is named 'w9'"),
    errors.InternalError("does not fit", ["a", "b"]),
    errors.InvalidTransition("inc-1", "memory", "waiting", ["released -> waiting"]),
    errors.InvalidState("inc-1 is in two queues", ["inc-1: waiting -> queued"]),
]


def subclasses(cls: type[WeftError]) -> list[type[WeftError]]:
    return [cls] + [found for sub in cls.__subclasses__() for found in subclasses(sub)]


def name(error: WeftError) -> str:
    return type(error).__name__


def test_every_class_has_an_example_and_is_exported():
    defined = {cls for cls in subclasses(WeftError) if cls.__module__.startswith(errors.__name__)}
    assert {type(example) for example in EXAMPLES} == defined
    assert {cls.__name__ for cls in defined} == set(errors.__all__)


@pytest.mark.parametrize("error", EXAMPLES, ids=name)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_error_survives_pickling(error, protocol):
    back = pickle.loads(pickle.dumps(error, protocol))
    assert type(back) is type(error)
    assert back.args == error.args
    assert vars(back) == vars(error)
    assert str(back) == str(error)


@pytest.mark.parametrize("error", EXAMPLES, ids=name)
def test_error_can_be_copied_and_made_again_from_its_arguments(error):
    for back in (copy.copy(error), type(error)(*error.args)):
        assert back.args == error.args
        assert vars(back) == vars(error)


@pytest.mark.parametrize("error", EXAMPLES, ids=name)
def test_every_field_is_in_the_text(error):
    text = str(error)
    for value in vars(error).values():
        for part in value if isinstance(value, (list, tuple, dict)) else [value]:
            shown = f"{part:g}" if isinstance(part, float) else str(part)
            assert part in ("", None) or shown in text


@pytest.mark.parametrize("cls", subclasses(WeftError))
def test_docstring_has_the_event_and_the_advice(cls):
    assert cls.__doc__ is not None
    what_happened, what_to_do = cls.__doc__.split("\n\n")[:2]
    assert what_happened.endswith(".")
    assert what_to_do.strip().split("\n")[0] != "Args:"


def test_errors_are_subclasses_of_the_builtins_that_callers_catch():
    assert issubclass(errors.ConnectTimeout, TimeoutError)
    assert issubclass(errors.WorkerStartTimeout, TimeoutError)
    assert issubclass(errors.TaskCancelled, concurrent.futures.CancelledError)
    assert issubclass(errors.InitializerFailed, concurrent.futures.BrokenExecutor)
    assert issubclass(errors.SerializationError, TypeError)
    assert issubclass(errors.StaleEpoch, errors.RemoteProtocolError)
    for cls in (errors.WrongToken, errors.WrongVersion, errors.WrongCluster, errors.WrongRole):
        assert issubclass(cls, errors.HandshakeError)
    for cls in (errors.CommClosed, errors.ConnectTimeout, errors.ConnectRefused):
        assert issubclass(cls, errors.CommError)


def test_timeouts_do_not_pass_their_fields_off_as_errno():
    assert errors.ConnectTimeout("nobody answered", "tcp://a:1", 2.5).errno is None
    assert errors.WorkerStartTimeout(4, 1, 30.0).errno is None


def test_story_has_one_line_per_item():
    error = errors.InvalidTransition("k", "memory", "waiting", iter(["first", "second"]))
    assert str(error).splitlines()[1:] == ["  first", "  second"]
    assert error.story == ("first", "second")


def test_errors_and_payload_need_no_pickle():
    script = (
        "import sys\n"
        "sys.modules['pickle'] = sys.modules['cloudpickle'] = None\n"
        "import weft.protocol.errors, weft.protocol.wire.payload\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
