"""How attempts ended: what other features note, and users are shown."""

from __future__ import annotations
