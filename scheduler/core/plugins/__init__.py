"""Code that clients hang into the processes of workers and supervisors."""

from __future__ import annotations
