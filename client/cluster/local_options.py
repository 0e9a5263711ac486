"""The options of a `LocalCluster` as types, for it and for a client that starts one."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TypedDict


class OptionsByName(TypedDict, total=False):
    """The options that are given by name; `LocalCluster` describes each."""

    protocol: str | None
    host: str | None
    dashboard_address: str | int | None
    resources: str | Mapping[str, float] | None
    local_directory: str | os.PathLike[str] | None
    silence_logs: int | bool
    preload: str | os.PathLike[str] | Sequence[str] | None
    env: Mapping[str, str | float] | None
    journal: str | os.PathLike[str] | None
    isolate: bool


class ClusterOptions(OptionsByName, total=False):
    """All that a client passes on: name, token and mode are its own as well."""

    n_workers: int | None
    threads_per_worker: int | None
    processes: bool
    memory_limit: str | float | None
