"""The scheduler: a pure core that decides, and a shell that connects it to workers and clients.

Its process never imports pickle or cloudpickle: user code and data are passed on unread.
"""

from __future__ import annotations

# From the checkout root, `import scheduler` would load every module once more under another
# name, and no class would equal its twin.
if __name__ != "weft.scheduler":
    raise ImportError(f"import weft.scheduler, not {__name__}")
