"""What a client does beside its tasks: see `client.core.feature`."""

from __future__ import annotations
