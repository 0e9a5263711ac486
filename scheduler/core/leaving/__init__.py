"""Workers that are sent away: on request, or because nobody uses the cluster."""

from __future__ import annotations
