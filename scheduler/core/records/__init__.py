"""The tables of the kernel: tasks, peers, queues, measurements. They import nothing above."""

from __future__ import annotations
