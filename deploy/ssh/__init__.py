"""`weft ssh`: a scheduler, and workers on other machines, by the ordinary OpenSSH client."""

from __future__ import annotations
