"""Clusters whose workers come as jobs that somebody else starts: `JobCluster`."""

from __future__ import annotations
