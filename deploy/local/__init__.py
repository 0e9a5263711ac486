"""`LocalCluster`: schedulers and workers that a program starts for itself."""

from __future__ import annotations
