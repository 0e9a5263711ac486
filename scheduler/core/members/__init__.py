"""Workers, clients and supervisors: joining, leaving, loss, and what they may do."""

from __future__ import annotations
