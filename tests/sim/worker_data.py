"""The data of one worker process: values that peers read, that clients put, and that it fetches."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from weft.protocol.wire.messages import FetchKeys, GetData, GetPromised, KeysData, Put
from weft.worker.core.events import (
    CopiesElsewhere,
    CopiesFetched,
    CopiesNotFetched,
    EndFetch,
    Fetch,
    WorkerAction,
)
from weft.worker.core.features.promises import (
    AnswerPromises,
    AskPromised,
    PromiseAsked,
    PromiseEnded,
    PromiseExpired,
)
from weft.worker.core.features.puts import EarlyValues, ValueExpired, ValuePut
from weft.worker.data.core.sending import LargeRequest, Sending

from .graphs import INDEX, LARGE, packed, unpacked

if TYPE_CHECKING:
    from .worker_node import WorkerNode


class WorkerDataNode:
    """The values of one worker that peers read, clients put, or it fetches."""

    def __init__(self, node: WorkerNode) -> None:
        self._node = node
        self._world = node.world
        #: {holder: callable that takes its answer}
        self._asked: dict[str, Callable[[KeysData | None], None]] = {}
        self._large = Sending()
        #: {request: what takes its answer} of those that were not answered
        self._senders: dict[LargeRequest, Callable[[KeysData | None], None]] = {}
        #: {number: (what is asked for, what takes the answer)} of attempts that others wait for
        self._promised: dict[int, tuple[GetPromised, Callable[[KeysData | None], None]]] = {}
        self._last_promised = 0
        #: {request: (holder, callable that takes its answer)} of what this worker waits for
        self.promises: dict[int, tuple[str, Callable[[KeysData | None], None]]] = {}
        #: {address: when it did not give parts that it was asked for}
        self.failed_holders: dict[str, float] = {}

    def do(self, action: WorkerAction) -> None:
        """Carry out an action of the core: it is about requests to peers, or of peers."""
        if isinstance(action, Fetch):
            self._fetch(action)
        elif isinstance(action, AskPromised):
            self._ask_promised(action)
        elif isinstance(action, AnswerPromises):
            self._answer_promises(action.asked)
        else:
            assert isinstance(action, EndFetch)
            self._give_up(action.holder)

    def answer(self, message: FetchKeys) -> KeysData:
        """Return what the scheduler asked for on behalf of a client."""
        keys, blobs = self.read(message.keys)
        missing = [key for key in message.keys if key not in keys]
        return KeysData(request=message.request, keys=keys, results=blobs, missing=missing)

    def read(self, keys: list[str]) -> tuple[list[str], list[Any]]:
        """Return those keys that are in memory here, and their pickles, as `Executor.lookup`."""
        found, blobs = [], []
        for key in keys:
            record = self._node.core.by_key.get(key)
            if record is None or record.state != "memory":
                continue
            if self._node.disk.serves(record):
                found.append(key)
                nbytes = self._node.sim.nbytes(key)
                blobs.append(packed(self._node.store[record.attempt], nbytes))
        return found, blobs

    def serve(self, reader: Any, message: GetData, send: Callable[[KeysData | None], None]) -> None:
        """Answer a request on the data port, now or when others are answered."""
        nbytes = sum(map(self._node.sim.nbytes, message.keys))
        keys, now = tuple(message.keys), self._world.now
        asked = LargeRequest(reader, message.request, keys, nbytes, message.address, now)
        self._senders[asked] = send
        if nbytes < LARGE or not asked.address or self._large.ask(asked, now):
            self._send(asked)
        else:
            self._world.probes["large request waits"] += 1
        self._look_at_large()

    def die(self) -> None:
        """Break the connections of all readers that wait."""
        for send in self._senders.values():
            send(None)
        self._senders.clear()
        for _, answer in self._promised.values():
            answer(None)
        self._promised.clear()
        self._large = Sending()

    def taken(self, reader: Any, request: int) -> None:
        """Take the word of a reader that it has the values."""
        if not self._node.when_awake(self.taken, reader, request):
            return
        for asked, address in self._large.taken(reader, request):
            self._world.probes["large request passed on"] += 1
            answer = KeysData(
                request=asked.request, keys=[], results=[], missing=[], elsewhere=address
            )
            self._senders.pop(asked)(answer)
        self._look_at_large()

    def _send(self, asked: LargeRequest) -> None:
        keys, blobs = self.read([*asked.keys])
        missing = [key for key in asked.keys if key not in keys]
        is_acknowledged = asked in self._large.sent and not missing
        self._senders.pop(asked)(
            KeysData(
                request=asked.request,
                keys=keys,
                results=blobs,
                missing=missing,
                acknowledge=is_acknowledged,
            )
        )
        if not is_acknowledged:
            self._large.sent.pop(asked, None)

    def _look_at_large(self) -> None:
        if not self._node.is_alive or not self._node.when_awake(self._look_at_large):
            return
        for asked in self._large.next(self._world.now):
            self._send(asked)
        if self._large.waiting:
            delay = self._large.next_look() - self._world.now
            self._world.at(max(delay, 0.0), self._look_at_large)

    def wait_for_attempt(
        self, message: GetPromised, send: Callable[[KeysData | None], None]
    ) -> None:
        """Answer a request for the result of an attempt, now or when that has ended."""
        self._last_promised += 1
        number = self._last_promised
        self._promised[number] = message, send
        self._node._handle(PromiseAsked(number, message.attempt))
        if number in self._promised:
            self._world.probes["promise waits"] += 1
            seconds = self._world.rng.choice([0.01, 0.1, 10.0])
            self._world.at(seconds, self._expire_promise, number, is_work=False)

    def _answer_promises(self, asked: list[int]) -> None:
        """Answer these requests: the attempts have ended."""
        for number in asked:
            if number not in self._promised:
                continue
            message, send = self._promised.pop(number)
            record = self._node.core.by_key.get(message.key)
            is_it = record is not None and record.attempt == message.attempt
            keys, blobs = self.read([message.key]) if is_it else ([], [])
            self._world.probes["promise kept" if keys else "promise broken"] += 1
            missing = [] if keys else [message.key]
            send(KeysData(request=message.request, keys=keys, results=blobs, missing=missing))

    def _expire_promise(self, number: int) -> None:
        if self._node.is_alive and number in self._promised:
            self._world.probes["promise expired"] += 1
            message, send = self._promised.pop(number)
            send(KeysData(request=message.request, keys=[], results=[], missing=[message.key]))
            self._node._handle(PromiseExpired(number, message.attempt))

    def _ask_promised(self, action: AskPromised) -> None:
        """Ask a peer for the result of an attempt."""
        request = GetPromised(request=action.request, key=action.key, attempt=action.attempt)

        def on_answer(answer: KeysData | None) -> None:
            if action.request not in self.promises:
                return  # it was given up
            if not self._node.when_awake(on_answer, answer):
                return
            del self.promises[action.request]
            if answer is None:
                self._node._handle(PromiseEnded(action.request, None, is_unreachable=True))
            elif not answer.keys:
                self._node._handle(PromiseEnded(action.request, None))
            else:
                self._node.store[action.attempt] = unpacked(answer.results[0])
                nbytes = self._node.sim.nbytes(action.key)
                self._node._handle(PromiseEnded(action.request, nbytes))

        self.promises[action.request] = action.holder, on_answer
        self._node.sim.ask(self._node, action.holder, request, on_answer)

    def take_put(self, message: Put) -> None:
        """Take values that a client puts."""
        for key, attempt, args in zip(message.keys, message.attempts, message.values, strict=True):
            if attempt not in self._node.store:
                spec = self._node.sim.graph.by_key[key]
                is_index = spec.function == INDEX
                assert is_index or self._node.sim.graph.spec_of(args) is spec
                self._node.store[attempt] = unpacked(args) if is_index else spec.value
                self._node._handle(ValuePut(key, attempt, spec.nbytes))
                if attempt in self._node.core.record(EarlyValues):
                    self._world.probes["put early"] += 1
                    seconds = self._world.rng.choice([0.01, 1.0])
                    self._world.at(seconds, self._expire, attempt, is_work=False)

    def _expire(self, attempt: int) -> None:
        if self._node.is_alive:
            self._node._handle(ValueExpired(attempt))

    def _fetch(self, action: Fetch) -> None:
        """Ask a peer for copies."""
        attempts = dict(zip(action.keys, action.attempts, strict=True))
        address = self._node.address if action.nbytes >= LARGE else ""
        request = GetData(request=action.request, keys=action.keys, address=address)

        def on_answer(answer: KeysData | None) -> None:
            if self._asked.get(action.holder) is not on_answer:
                return  # it was given up
            if not self._node.when_awake(on_answer, answer):
                return
            del self._asked[action.holder]
            if answer is None:
                self._node._handle(CopiesNotFetched(action.holder, action.request))
                return
            if answer.elsewhere:
                event = CopiesElsewhere(action.holder, action.request, answer.elsewhere)
                self._node._handle(event)
                return
            for key, blob in zip(answer.keys, answer.results, strict=True):
                self._node.store[attempts[key]] = unpacked(blob)
            nbytes = [self._node.sim.nbytes(key) for key in answer.keys]
            self._node._handle(CopiesFetched(action.holder, action.request, answer.keys, nbytes))
            holder = self._node.sim.by_address.get(action.holder)
            if answer.acknowledge and holder is not None:
                delay = self._node.sim.plan.timing.draw(self._world)
                self._world.at(delay, holder.data.taken, self._node, action.request)

        assert action.holder not in self._asked
        self._asked[action.holder] = on_answer
        self._node.sim.ask(self._node, action.holder, request, on_answer)

    def _give_up(self, holder: str) -> None:
        """End the request to a peer, if there is one, as if its connection had broken."""
        if holder in self._asked:
            self._world.probes["fetch given up"] += 1
            self._world.at(0.0, self._asked[holder], None)
        for address, on_answer in list(self.promises.values()):
            if address == holder:
                self._world.at(0.0, on_answer, None)
