"""The name by which Snakemake finds weft's executor."""

from __future__ import annotations

from weft.compat.snakemake import ExecutorSettings, common_settings
from weft.compat.snakemake import SnakemakeExecutor as Executor

__all__ = ["Executor", "ExecutorSettings", "common_settings"]
