"""The features of results: values that clients put, copies, data that is relayed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol.wire import messages as m
from ....protocol.wire.levels import Level
from ..feature import Departure, Feature, LateQuestion
from . import copies, part_indexes, puts, rebalancing, relays, scattered

if TYPE_CHECKING:
    from ..records.peers import ClientHandle, WorkerHandle
    from ..state import SchedulerState


def _on_client_connected(state: SchedulerState, client: ClientHandle, last_epoch: int) -> None:
    puts.on_client_back(state, client)


PUTS: Final = Feature(
    name="puts and scattered values",
    records=(puts.Puts,),
    handlers=puts.HANDLERS,
    invariants=scattered.SCATTERED_INVARIANTS,
    client_connected=(_on_client_connected,),
    client_gone=(puts.on_client_gone,),
    placing=(scattered.place,),
    assigned={m.PUT_FUNCTION: puts.ask},
    submitted_again={m.PUT_FUNCTION: puts.note_submitted},
    values_stored=(scattered.note_stored,),
)


PART_INDEXES: Final = Feature(
    name="indexes of parts",
    records=(part_indexes.PartIndexes, part_indexes.NamedHolders),
    notes=(part_indexes.NamedHolders,),
    invariants=part_indexes.INDEX_INVARIANTS,
    placing=(part_indexes.place,),
    assigned={m.INDEX_FUNCTION: part_indexes.send},
    attempts_finished=(part_indexes.on_finished,),
    attempts_erred=(part_indexes.on_erred,),
    not_fetched=(part_indexes.on_not_fetched,),
    results_lost=(part_indexes.on_results_lost,),
    recipe_given=(part_indexes.on_recipe_given,),
)


COPIES: Final = Feature(
    name="copies",
    records=(copies.Copies,),
    orders={
        "replicate": LateQuestion(copies.on_replicate, Level.WORKER),
        "rebalance": LateQuestion(rebalancing.on_rebalance, Level.WORKER),
    },
    invariants=copies.COPY_INVARIANTS,
    worker_joined=(copies.on_worker_with_room,),
    worker_opened=(copies.on_worker_with_room,),
    replicas_added=(copies.on_added,),
    not_fetched=(copies.on_not_fetched,),
    replica_lost=(copies.on_lost,),
    worker_leaving=(copies.on_worker_leaving,),
)


def _on_worker_gone(state: SchedulerState, ws: WorkerHandle, departure: Departure) -> None:
    relays.end_relays(state, ws)


RELAYS: Final = Feature(
    name="relays",
    records=(relays.Relays,),
    invariants=relays.RELAY_INVARIANTS,
    handlers={m.FetchKeys: relays.on_client_fetch, m.KeysData: relays.on_worker_data},
    worker_back=(relays.on_worker_back,),
    worker_gone=(_on_worker_gone,),
    unsupported=(relays.on_unsupported,),
)
