"""Starts weft: the command line and the local cluster."""

from __future__ import annotations

# From the checkout root, `import deploy` would load every module once more under another
# name, and no class would equal its twin.
if __name__ != "weft.deploy":
    raise ImportError(f"import weft.deploy, not {__name__}")
