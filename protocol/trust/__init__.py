"""Access to a cluster: tokens, certificates, secret files, the connection file."""

from __future__ import annotations
