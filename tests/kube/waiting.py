"""Waiting for what an API server reports."""

from __future__ import annotations

from functools import partial
from typing import Final

from tests import leaks

#: Seconds between two looks: each is a connection with TLS, or a program that makes one.
LOOK_S: Final = 0.1

wait_until = partial(leaks.wait_until, look_s=LOOK_S)
