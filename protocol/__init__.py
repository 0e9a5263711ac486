"""The common language of weft's processes: errors, messages, frames, handshake, serialization.

The lowest layer: it imports none of the other folders.
"""

from __future__ import annotations

# From the checkout root, `import protocol` would load every module once more under another
# name, and no class would equal its twin.
if __name__ != "weft.protocol":
    raise ImportError(f"import weft.protocol, not {__name__}")
