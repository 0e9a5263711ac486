"""Messages of a client to the scheduler."""

from __future__ import annotations

from dataclasses import field

from ..levels import Level
from ..message import (
    Blobs,
    Flag,
    Ids,
    Ints,
    KeyLists,
    Keys,
    Message,
    Number,
    Options,
    Text,
    Texts,
    message,
)
from ..roles import CLIENTS, WORKERS, Role


@message(
    16,
    by=CLIENTS,
    columns=("keys", "function_of", "args"),
    optional_columns=("dependencies", "spec_hashes", "option_of", "ranks"),
    tables=(("functions", "function_names", "function_blobs"), ("options",)),
    indexes=("function_of", "option_of"),
)
class SubmitTasks(Message):
    """Submit tasks: `keys[i]` calls `functions[function_of[i]]` with `options[option_of[i]]`.

    The client wants every key. A function's blob is None if the client holds another wanted key
    of that function, so that the scheduler still has it. `spec_hashes` is filled for keys that the
    user named. Without `option_of` all rows have the first options, or the default ones if there
    are none. A row with a rank has that place among the tasks submitted at about the same time;
    without ranks the order of the rows decides, and that of their inputs.
    """

    functions: Ids
    function_names: Texts
    function_blobs: Blobs
    function_of: Ints
    keys: Keys
    args: Blobs
    dependencies: KeyLists
    spec_hashes: Ids
    options: Options
    option_of: Ints = field(default_factory=list)
    ranks: Ints = field(default_factory=list)


@message(17, by=CLIENTS, columns=("keys",), optional_columns=("spec_hashes", "attempts"))
class WantKeys(Message):
    """Want keys that the client did not submit in this session; the answer is their state.

    `spec_hashes` is filled for keys that the user named, as far as the client knows them: a task of
    the same name with another hash is a different task. `attempts` is filled for results that are
    unique, as far as the client knows the attempts that made them, 0 for others: a result of
    another attempt is a different one.
    """

    keys: Keys
    spec_hashes: Ids = field(default_factory=list)
    attempts: Ints = field(default_factory=list)


@message(18, by=CLIENTS, columns=("keys",))
class ReleaseKeys(Message):
    """Release keys: the client's last future of each is gone."""

    keys: Keys


@message(24, by=CLIENTS, columns=("keys", "spec_hashes"))
class ReleaseOthers(Message):
    """Release each key unless its task has this hash.

    The client is about to submit tasks of these names, which may be the same tasks or others.
    """

    keys: Keys
    spec_hashes: Ids


@message(19, by=CLIENTS, columns=("keys",))
class CancelKeys(Message):
    """Cancel tasks that are not done; with `force` even if other clients want them.

    With `running` those that run are interrupted, if nobody wants them any more.
    """

    keys: Keys
    force: Flag
    reason: Text
    running: Flag = False


@message(118, by=CLIENTS, columns=("keys",))
class WithdrawKeys(Message):
    """Cancel those of these tasks whose calls have not begun.

    The answer to each is `KeysCancelled`, or `KeysStarted`, or its end.
    """

    keys: Keys
    reason: Text


@message(20, by=CLIENTS, to=WORKERS)
class FetchKeys(Message):
    """Ask for the data of these keys by way of the scheduler, if a worker cannot be reached."""

    request: Number
    keys: Keys


@message(21, by=CLIENTS, columns=("keys",))
class ReportMissing(Message):
    """Report that `holder` does not have these keys, and ask for their current holders."""

    keys: Keys
    holder: Text


@message(23, by=(Role.CLIENT,), level=Level.ADMIN)
class ShutdownCluster(Message):
    """Stop the scheduler and all workers.

    The answer is the end of the connection, or `Denied` with the number of this `request`.
    """

    reason: Text
    request: Number = 0
