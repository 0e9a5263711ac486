"""What the kernel of a worker does not know: one module for each feature."""

from __future__ import annotations
