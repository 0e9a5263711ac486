"""Workers that some tasks avoid while others may run them."""

from __future__ import annotations
