"""The worker: a core that decides what to run, fetch and drop, and a shell that does it."""

from __future__ import annotations

# From the checkout root, `import worker` would load every module once more under another
# name, and no class would equal its twin.
if __name__ != "weft.worker":
    raise ImportError(f"import weft.worker, not {__name__}")
