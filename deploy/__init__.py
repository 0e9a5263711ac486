"""Starts weft: the command line and the local cluster."""

from __future__ import annotations

# From the checkout root, `import deploy` would load every module once more under another
# name, and no class would equal its twin.
if __name__ != "weft.deploy":
    raise ImportError(f"import weft.deploy, not {__name__}")


def __getattr__(name: str) -> object:
    """Return `KubeCluster` or `LocalCluster`, whose modules are imported when they are needed."""
    if name == "KubeCluster":
        from .kubernetes.cluster import KubeCluster

        return KubeCluster
    if name == "LocalCluster":
        from .local.cluster import LocalCluster

        return LocalCluster
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
