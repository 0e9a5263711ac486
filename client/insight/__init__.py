"""Questions about tasks and the cluster, and what is drawn from the answers."""

from __future__ import annotations
