"""`weft top` and `weft status --watch`: the cluster as it changes, in a terminal."""

from __future__ import annotations
