"""Detached jobs: what is recorded of them, so that they outlive their client and this scheduler."""
