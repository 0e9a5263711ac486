"""Values: kept, sent to other workers, fetched from them."""

from __future__ import annotations
