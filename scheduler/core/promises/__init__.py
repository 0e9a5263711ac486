"""Tasks that are assigned while other workers run their inputs."""

from __future__ import annotations
