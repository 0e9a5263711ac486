"""Printed text and records of logs on their way from tasks to clients."""

from __future__ import annotations
