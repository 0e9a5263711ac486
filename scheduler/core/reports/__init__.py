"""What workers say of their attempts."""

from __future__ import annotations
