"""Runs graphs on a cluster in blocks: many tasks as one task of the cluster."""

from __future__ import annotations
