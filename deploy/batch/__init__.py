"""Clusters on batch systems: Slurm, PBS, Grid Engine and LSF."""

from __future__ import annotations
