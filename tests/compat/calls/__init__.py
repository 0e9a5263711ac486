"""The calls of dask.distributed, as rows that are run with it and with weft."""

from __future__ import annotations

from . import (
    clients,
    clusters,
    controlling,
    coordination,
    futures,
    looking,
    moving,
    services,
    sharing,
    submitting,
)
from .names import opened, preamble_of
from .row import Call, Library

#: {heading: rows}
SECTIONS: dict[str, list[Call]] = {
    "Clients": clients.START,
    "Submit": submitting.SUBMIT,
    "Move data": moving.MOVE,
    "Control": controlling.CONTROL,
    "Look": looking.LOOK,
    "Futures, and functions of them": futures.FUTURE,
    "Inside a task": sharing.INSIDE,
    "Coordination": coordination.SHARED,
    "Actors": sharing.ACTORS,
    "Options and annotations": sharing.OPTIONS,
    "Clusters": clusters.CLUSTERS,
    "Plugins and preloaded modules": services.PLUGINS,
    "Memory and scheduling": services.SERVICES,
}

DISTRIBUTED = Library("distributed", "from_dask_calls.md", SECTIONS, preamble_of, opened)
