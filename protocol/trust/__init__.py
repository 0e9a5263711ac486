"""Who may connect: tokens, certificates, secret files, the connection file."""

from __future__ import annotations
