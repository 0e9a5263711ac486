"""Random users, a random network and a scheduler that checks all messages, around the real core.

The model scheduler keeps the contract of `protocol.messages`: it drops a function when none of its
tasks is left, answers in order, and forgets keys that no client wants. Its links lose messages
when they break, and it may come back without any state. At the end everything is delivered: every
future must be final, with the value of its own key and generation, and after the last release the
scheduler must hold nothing.
"""

from __future__ import annotations

from collections import deque
from contextlib import nullcontext

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    precondition,
    rule,
)

from weft.client.core.events import (
    AnswersReceived,
    Cancel,
    ClientTick,
    Connected,
    Disconnected,
    FetchFrom,
    Loaded,
    Operations,
    ResultsFetched,
    ResultsNotFetched,
    Unwatch,
    Want,
    Watch,
)
from weft.client.core.features import FEATURES
from weft.client.core.state import ClientState
from weft.client.core.table import FutureTable
from weft.client.core.tasks import (
    FAILED,
    NO_VALUE,
    FunctionRecord,
    FutureState,
    TaskColumns,
    TaskRecord,
    Watcher,
)
from weft.client.core.validate import validate
from weft.protocol.wire import messages as m
from weft.protocol.wire.options import NO_OPTIONS, TaskOptions

HOLDER = "tcp://worker:1"


class Remembering(Watcher):
    def __init__(self, wants_data):
        super().__init__(wants_data)
        self.told = []


class ModelConstants:
    function = (b"c" * 16, b"<%s>" % (b"c" * 16))

    @staticmethod
    def arguments(blob):
        return b"=" + blob


class ModelTask:
    def __init__(self, function_id, args, dependencies, spec_hash):
        self.function_id = function_id
        self.spec_hash = spec_hash
        self.args = args
        self.dependencies = dependencies
        self.status = "pending"
        self.is_large = False
        self.failure = None

    @property
    def value(self):
        return self.args[1:] if self.is_constant else b"value of " + self.args

    @property
    def is_constant(self):
        return self.function_id == ModelConstants.function[0]


class ModelScheduler:
    """Tasks by key, wants of one client, and an ordered list of answers."""

    def __init__(self):
        self.tasks = {}
        self.functions = {}
        self.wants = {}
        self.answers = []
        #: Used by no task, and kept a while: the last submission was refused.
        self.idle = {}

    def on_message(self, message):
        handler = getattr(self, f"on_{type(message).__name__}")
        handler(message)
        self.collect()

    def on_SubmitTasks(self, message):
        assert len(message.functions) == len(message.function_blobs)
        for function_id, blob in zip(message.functions, message.function_blobs, strict=True):
            if blob is not None:
                assert blob == b"<%s>" % function_id
                self.functions[function_id] = blob
            assert function_id in self.functions, "the blob did not come, and is not here"
        assert len({*message.keys}) == len(message.keys)
        n = len(message.keys)
        assert len(message.args) == len(message.function_of) == n
        assert len(message.dependencies) in (0, n)
        assert len(message.spec_hashes) in (0, n)
        assert len(message.option_of) in (0, n)
        assert all(option < len(message.options) for option in message.option_of)
        for i, key in enumerate(message.keys):
            self.wants[key] = None
            # Rows without a hash among others that have one carry zeros.
            spec_hash = message.spec_hashes[i].strip(bytes(1)) if message.spec_hashes else b""
            function_id = message.functions[message.function_of[i]]
            is_constant = function_id == ModelConstants.function[0]
            if key in self.tasks:
                if self.tasks[key].spec_hash != spec_hash and (spec_hash or not is_constant):
                    assert self.is_read(key), "another task of the same name, needed by nobody"
                    del self.wants[key]
                    self.idle[function_id] = None
                    failure = ["key-conflict", key]
                    answer = m.KeysErred(keys=[key], failure_of=[0], failures=[failure])
                    self.answers.append(answer)
                    continue
                if not (is_constant or self.tasks[key].is_constant):
                    assert self.tasks[key].args == message.args[i]
                self.tell(key)
                continue
            dependencies = message.dependencies[i] if message.dependencies else []
            task = ModelTask(function_id, message.args[i], dependencies, spec_hash)
            self.tasks[key] = task
            for dependency in dependencies:
                if dependency not in self.tasks:
                    task.status, task.failure = "erred", ["data-lost", dependency, "unknown here"]
                    self.tell(key)
                    break

    def on_WantKeys(self, message):
        for i, key in enumerate(message.keys):
            spec_hash = message.spec_hashes[i].strip(bytes(1)) if message.spec_hashes else b""
            if key in self.tasks and spec_hash in (b"", self.tasks[key].spec_hash):
                self.wants[key] = None
                self.tell(key)
            else:
                self.answers.append(m.KeysUnknown(keys=[key]))

    def on_ReleaseKeys(self, message):
        for key in message.keys:
            self.wants.pop(key, None)

    def on_ReleaseOthers(self, message):
        for key, spec_hash in zip(message.keys, message.spec_hashes, strict=True):
            if key in self.tasks and self.tasks[key].spec_hash != spec_hash:
                self.wants.pop(key, None)

    def on_Resubmitted(self, message):
        pass

    def is_read(self, key):
        return any(key in t.dependencies and t.status == "pending" for t in self.tasks.values())

    def on_CancelKeys(self, message):
        for key in message.keys:
            if self.wants.pop(key, 0) is None:
                self.answers.append(m.KeysCancelled(keys=[key], reason=message.reason))

    def on_FetchKeys(self, message):
        self.answers.append(self.data(message.request, message.keys))

    def on_ReportMissing(self, message):
        for key in message.keys:
            task = self.tasks.get(key)
            if task is None:
                self.answers.append(m.KeysUnknown(keys=[key]))
            elif task.status == "memory":
                task.status = "pending"
                self.answers.append(m.KeysPending(keys=[key]))

    def data(self, request, keys, lost=()):
        found = [
            k
            for k in keys
            if k in self.tasks and self.tasks[k].status == "memory" and k not in lost
        ]
        return m.KeysData(
            request=request,
            keys=found,
            results=[self.tasks[k].value for k in found],
            missing=[k for k in keys if k not in found],
        )

    def tell(self, key):
        task = self.tasks[key]
        if key not in self.wants:
            return
        if task.failure is not None:
            answer = m.KeysErred(keys=[key], failure_of=[0], failures=[task.failure])
        elif task.status == "pending":
            answer = m.KeysPending(keys=[key])
        elif task.is_large:
            answer = m.KeysInMemory(keys=[key], nbytes=[1000], holder_of=[0], holders=[HOLDER])
        else:
            answer = m.ResultsReady(keys=[key], results=[task.value])
        self.answers.append(answer)

    def ready(self):
        def is_ready(task):
            needed = [self.tasks.get(k) for k in task.dependencies]
            return all(n is not None and (n.status == "memory" or n.failure) for n in needed)

        return [k for k, t in self.tasks.items() if t.status == "pending" and is_ready(t)]

    def finish(self, key, how):
        task = self.tasks[key]
        failed = [
            self.tasks[k].failure for k in task.dependencies if self.tasks[k].failure is not None
        ]
        if failed:
            task.status, task.failure = "erred", failed[0]
        elif how == "fail":
            task.status, task.failure = "erred", ["exception", key, b"", "T", "t", "", b""]
        else:
            task.status, task.is_large = "memory", how == "large"
        self.tell(key)
        self.collect()

    def collect(self):
        """Forget tasks that are neither wanted nor needed."""
        needed = list(self.wants)
        kept = {}
        while needed:
            key = needed.pop()
            if key in self.tasks and key not in kept:
                kept[key] = None
                if self.tasks[key].status == "pending":
                    needed.extend(self.tasks[key].dependencies)
        for key in [k for k in self.tasks if k not in kept]:
            del self.tasks[key]
        used = {*self.idle, *(task.function_id for task in self.tasks.values())}
        self.functions = {k: v for k, v in self.functions.items() if k in used}


class ClientMachine(RuleBasedStateMachine):
    futures = Bundle("futures")

    def __init__(self):
        super().__init__()
        self.table = FutureTable(nullcontext())
        self.core = ClientState(self.table, FEATURES, ModelConstants())
        self.epoch = 1
        self.scheduler = ModelScheduler()
        self.queue = []
        self.to_scheduler = deque()
        self.to_client = deque()
        self.fetches = []
        self.is_connected = False
        self.now = 0.0
        self.n_sessions = 0
        self.functions = [
            FunctionRecord(c * 16, b"<%s>" % (c * 16), c.decode()) for c in (b"f", b"g")
        ]
        #: Futures that users hold: (state, arguments that were given).
        self.held = []
        #: {id of a state: arguments}, of keys that users named; not of futures of unknown origin.
        self.named = {}
        self.watchers = []

    # -- users

    def args_of(self, key):
        return f"args of {key}".encode()

    @rule(
        target=futures,
        name=st.integers(0, 7),
        named=st.sampled_from([None, None, b"1", b"2"]),
        priority=st.integers(0, 1),
        data=st.data(),
    )
    def submit(self, name, named, priority, data):
        # Dependencies have smaller names, or there would be cycles. A key has always the same
        # function and arguments, unless the user named it.
        name = 2 * name + (1 if named else 0)
        key = f"k{name}"
        spec_hash = bytes([65 + name]) * 15 + named if named else None
        args = self.args_of(key) + (named or b"")
        known = self.table.states.get(key)
        try:
            (state,), replaced = self.table.attach([key], [spec_hash] if named else None)
        except ValueError:
            assert self.named.get(id(known)) != args
            return multiple()
        if named and state is not known:
            self.named[id(state)] = args
        below = [state for state in self.held if int(state.key[1:].split("-")[0]) < name]
        dependencies = []
        if below and name % 3:
            dependencies = [data.draw(st.sampled_from(below)).key]
        self.queue.append(
            TaskRecord(
                state,
                self.functions[1 if named == b"1" else name % 2],
                args,
                dependencies,
                TaskOptions(priority=priority),
                spec_hash,
                replaced[0] if replaced else None,
            )
        )
        self.held.append(state)
        return state

    @rule(
        target=futures,
        names=st.lists(st.integers(0, 20), min_size=1, max_size=5),
        pure=st.booleans(),
    )
    def map(self, names, pure):
        replaced = None
        if pure:
            keys = [f"{2 * n}-m" for n in names]
            keys = [f"k{key}" for key in keys]
            states, replaced = self.table.attach(keys)
        else:
            self.n_sessions += 1
            keys = [f"k{n}-{self.n_sessions}-{i}" for i, n in enumerate(names)]
            states = [FutureState(key) for key in keys]
            self.table.add(states)
        args = [self.args_of(key) for key in keys]
        self.queue.append(
            TaskColumns(states, self.functions[0], args, [], NO_OPTIONS, None, replaced)
        )
        self.held += states
        return multiple(*states)

    @rule(target=futures, name=st.integers(0, 15))
    def unpickle(self, name):
        key = f"k{name}"
        is_new = key not in self.table.states
        state = self.table.find_or_make(key)
        if is_new:
            self.named.pop(id(state), None)
        self.queue.append(Want([state]))
        self.held.append(state)
        return state

    @rule(future=consumes(futures))
    def release(self, future):
        self.held.remove(future)
        self.queue.append(future)

    @rule(future=futures, wants_data=st.booleans())
    def watch(self, future, wants_data):
        watcher = Remembering(wants_data)
        self.watchers.append((watcher, future))
        self.queue.append(Watch(watcher, [future]))

    @precondition(lambda self: self.watchers)
    @rule(data=st.data())
    def unwatch(self, data):
        entry = data.draw(st.sampled_from(self.watchers))
        self.watchers.remove(entry)
        self.queue.append(Unwatch(entry[0], [entry[1]]))

    @rule(future=futures)
    def cancel(self, future):
        self.queue.append(Cancel([future]))

    # -- the loop

    def handle(self, event):
        self.now += 0.01
        self.core.handle(event, self.now)
        if self.is_connected:
            self.to_scheduler.extend(self.core.to_scheduler)
            self.core.to_scheduler = []
        for notify in self.core.before:
            assert notify.items
            notify.watcher.told += notify.items
        self.core.before = []
        self.fetches += [action for action in self.core.after if isinstance(action, FetchFrom)]
        self.core.after = []

    @rule()
    def flush(self):
        if self.queue:
            operations, self.queue = self.queue, []
            self.handle(Operations(operations))

    @precondition(lambda self: not self.is_connected)
    @rule(kind=st.sampled_from(["same", "forgot", "new"]))
    def connect(self, kind):
        if kind != "same":
            self.scheduler = ModelScheduler()
        if kind == "new":
            self.epoch += 1
        self.is_connected = True
        self.handle(Connected(self.epoch))

    @precondition(lambda self: self.is_connected)
    @rule()
    def disconnect(self):
        self.is_connected = False
        self.to_scheduler.clear()
        self.to_client.clear()
        self.scheduler.answers.clear()
        self.handle(Disconnected())

    @rule(future=futures)
    def load(self, future):
        state = future
        if state.blob is not None and state.value is NO_VALUE and state in self.held:
            state.value = state.blob
            if state.spec is not None:
                state.blob = None
            else:
                self.queue.append(Loaded(state))

    @rule()
    def tick(self):
        self.handle(ClientTick())

    # -- the other side

    @precondition(lambda self: self.to_scheduler)
    @rule(n=st.integers(1, 5))
    def scheduler_reads(self, n):
        for _ in range(min(n, len(self.to_scheduler))):
            self.scheduler.on_message(self.to_scheduler.popleft())
        self.to_client.extend(self.scheduler.answers)
        self.scheduler.answers.clear()

    @precondition(lambda self: self.scheduler.ready())
    @rule(how=st.sampled_from(["small", "small", "large", "fail"]), data=st.data())
    def scheduler_finishes(self, how, data):
        self.scheduler.finish(data.draw(st.sampled_from(self.scheduler.ready())), how)
        if self.is_connected:
            self.to_client.extend(self.scheduler.answers)
        self.scheduler.answers.clear()

    @precondition(lambda self: self.to_client)
    @rule(n=st.integers(1, 5))
    def client_reads(self, n):
        received = [self.to_client.popleft() for _ in range(min(n, len(self.to_client)))]
        self.handle(AnswersReceived(received))

    @precondition(lambda self: self.fetches)
    @rule(how=st.sampled_from(["answer", "lose", "fail"]), data=st.data())
    def worker_answers(self, how, data):
        fetch = data.draw(st.sampled_from(self.fetches))
        self.fetches.remove(fetch)
        assert fetch.holder == HOLDER
        if how == "fail":
            self.handle(ResultsNotFetched(fetch.request, "unreachable"))
            return
        answer = self.scheduler.data(fetch.request, fetch.keys, fetch.keys if how == "lose" else ())
        self.handle(ResultsFetched(answer.request, answer.keys, answer.results))

    # -- invariants

    @invariant()
    def the_core_is_consistent(self):
        validate(self.core)

    @invariant()
    def references_are_exact(self):
        queued = [op for op in self.queue if isinstance(op, FutureState)]
        count = {}
        for state in [*self.held, *queued]:
            count[id(state)] = count.get(id(state), 0) + 1
        for state in self.held:
            assert state.n_references == count[id(state)]
            current = self.table.states.get(state.key)
            assert current is state or state.status in FAILED
        alive = {*map(id, [*self.held, *queued])}
        assert all(id(state) in alive for state in self.table.states.values())

    def come_to_rest(self):
        if not self.is_connected:
            self.connect("same")
        for _ in range(1000):
            self.flush()
            if self.to_scheduler:
                self.scheduler_reads(len(self.to_scheduler))
            ready = self.scheduler.ready()
            for key in ready:
                self.scheduler.finish(key, "small")
            self.to_client.extend(self.scheduler.answers)
            self.scheduler.answers.clear()
            if self.to_client:
                self.client_reads(len(self.to_client))
            for fetch in self.fetches[:]:
                self.fetches.remove(fetch)
                answer = self.scheduler.data(fetch.request, fetch.keys)
                self.handle(ResultsFetched(answer.request, answer.keys, answer.results))
            validate(self.core)
            if not (self.queue or self.to_scheduler or self.to_client or self.fetches or ready):
                return
        raise AssertionError("it never comes to rest")

    def teardown(self):
        self.come_to_rest()
        for state in self.held:
            assert state.status != "pending", state
            if state.failure is None:
                if not state.has_data:
                    assert state.location is not None
                else:
                    args = self.named.get(id(state), self.args_of(state.key))
                    value = state.blob if state.value is NO_VALUE else state.value
                    assert value.startswith(b"value of " + args)
        for watcher, future in self.watchers:
            assert watcher.told == [future]
        self.queue += self.held
        self.held.clear()
        self.come_to_rest()
        assert self.table.states == {}
        assert not self.core.unsent
        assert self.core.unanswered is None
        assert [f.n_wanted for f in self.functions] == [0, 0]
        assert self.scheduler.wants == {}
        assert self.scheduler.tasks == {}


TestClientMachine = ClientMachine.TestCase
TestClientMachine.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
