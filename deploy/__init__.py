"""Starts weft: the command line and the local cluster."""

from __future__ import annotations

# From the checkout root, `import deploy` would load every module once more under another
# name, and no class would equal its twin.
if __name__ != "weft.deploy":
    raise ImportError(f"import weft.deploy, not {__name__}")

#: {public name: module that defines it}, which is imported when it is needed.
_HOMES = {
    "Cluster": "cluster",
    "BatchCluster": "batch.cluster",
    "JobCluster": "jobs.cluster",
    "JobState": "jobs.ledger",
    "KubeCluster": "kubernetes.cluster",
    "LSFCluster": "batch.cluster",
    "LocalCluster": "local.cluster",
    "PBSCluster": "batch.cluster",
    "SGECluster": "batch.cluster",
    "SSHCluster": "ssh.ssh_cluster",
    "SlurmCluster": "batch.cluster",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605


def __getattr__(name: str) -> object:
    """Return a class of clusters, or what one needs."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{home}", __name__), name)
