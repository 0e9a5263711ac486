"""Users who follow loggers of the workers, and workers that log.

What is asserted: a record comes only to clients that have wanted it, and to each at most once; and
at rest, the workers catch what the clients that are connected want together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.client.core.events import SendInOrder
from weft.client.core.features.notices import notices_of
from weft.client.core.tasks import Watcher
from weft.protocol.wire.messages import LogRecords, WantOutput
from weft.scheduler.core.output.wishes import NO_WISH, wishes_of
from weft.worker.core.features.output import OutputCame, RecordBuffer

if TYPE_CHECKING:
    from .client_node import ClientNode
    from .simulation import Simulation

LOGGERS = ("", "a", "a.b", "c")
LEVELS = (10, 30)


class Follower(Watcher):
    """What one user follows, and the records that came."""

    __slots__ = ("client", "seen", "sim", "wanted", "wish")

    def __init__(self, sim: Simulation, client: ClientNode) -> None:
        super().__init__(wants_data=False)
        self.sim = sim
        self.client = client
        self.wish: dict[str, int] = {}
        #: {(logger, level): None} that were ever wanted: a wish may change while records come
        self.wanted: dict[tuple[str, int], None] = {}
        #: {packed record: None}
        self.seen: dict[bytes, None] = {}

    def change(self) -> None:
        """Want something else from now on."""
        rng = self.sim.world.rng
        names = rng.sample(LOGGERS, k=rng.randint(0, 2))
        self.wish = {name: rng.choice(LEVELS) for name in names}
        self.wanted |= dict.fromkeys(self.wish.items())
        self.client.post(SendInOrder(self.message()))

    def message(self) -> WantOutput:
        """Return what states the wish, also in a new session."""
        return WantOutput(clients=[], level=0, loggers=dict(self.wish))

    def on_ready(self, items: list[Any]) -> None:
        """See `Watcher`."""
        for message in items:
            assert isinstance(message, LogRecords)
            rows = zip(message.names, message.levels, message.records, strict=True)
            for name, level, record in rows:
                self.sim.world.probes[f"records: {'left out' if record is None else 'came'}"] += 1
                if record is None:
                    continue
                assert isinstance(record, bytes)
                assert record not in self.seen, f"{record!r} came twice to {self.client!r}"
                self.seen[record] = None
                assert any(
                    level >= least and (not followed or f"{name}.".startswith(f"{followed}."))
                    for followed, least in self.wanted
                ), f"{self.client!r} does not follow {name!r} from {level} on"


def act(sim: Simulation) -> None:
    """Let a user change what it follows, or a worker log what it is to catch."""
    rng = sim.world.rng
    if rng.random() < 0.2:
        clients = [client for client in sim.clients if client.is_alive]
        if clients:
            client = rng.choice(clients)
            follower = sim.followers.get(client)
            if follower is None:
                follower = sim.followers[client] = Follower(sim, client)
                notices_of(client.core).output = follower
                client.first_messages = lambda: [follower.message()]
            follower.change()
        return
    workers = [worker for worker in sim.workers.values() if worker.is_alive and worker.caught]
    if workers:
        worker = rng.choice(workers)
        buffer = RecordBuffer()
        for _ in range(rng.choice([1, 3, 100])):
            name = rng.choice([*worker.caught, *LOGGERS])
            level = rng.choice((5, 10, 30))
            if buffer.has_room(sim.world.now, name, level):
                buffer.add(name, level, sim.new_id("record").encode())
        message = buffer.take()
        assert message is not None
        worker.log(OutputCame(message))


def check(sim: Simulation) -> None:
    """Check, at rest, that the workers catch what is wanted."""
    wanted: dict[str, int] = {}
    wishes = wishes_of(sim.scheduler.core)
    for wish in wishes.heeded.values():
        for name, level in wish.loggers.items():
            wanted[name] = min(level, wanted.get(name, level))
    for follower in sim.followers.values():
        handle = sim.scheduler.core.clients.get(follower.client.client_id)
        if follower.client.is_alive and handle is not None and handle.peer is not None:
            postponed = wishes.postponed.get(handle)
            heeded = postponed[0] if postponed else wishes.heeded.get(handle, NO_WISH)
            assert dict(heeded.loggers) == follower.wish, (
                f"{follower.client!r} wants {follower.wish}, and {heeded} is heeded"
            )
    known = sim.scheduler.core.workers_by_id
    for worker in sim.workers.values():
        handle_of = known.get(worker.worker_id)
        if worker.is_alive and handle_of is not None and handle_of.peer in sim.scheduler.core.roles:
            assert worker.caught == wanted, f"{worker!r} catches {worker.caught}, not {wanted}"
