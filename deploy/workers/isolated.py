"""A child process of an isolating worker; see `worker/isolation`."""

from __future__ import annotations

from ...worker.isolation.child import run_child
from ...worker.measuring.children import send_user_code_by_value
from ..processes.titles import set_title
from .offering import offer_client


def main(fd: int) -> None:
    """Be a child, with the descriptor of its socket to the worker."""
    set_title("weft isolated task")
    send_user_code_by_value()
    offer_client()
    run_child(fd)
