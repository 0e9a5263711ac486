"""What nodes that run containers need of the machine."""

from __future__ import annotations

import os

from tests.kube.containers.enclosure import has_controllers_of_v1
from tests.tools.find import find
from tests.tools.table import row_of

#: Programs; those of tests/kube are needed as well.
PROGRAMS = (
    *("helm", "etcd", "kube-apiserver", "kubectl", "kubelet", "kube-proxy", "dns", "policies"),
    *("containerd", "ctr", "runc", "buildah", "mmdebstrap", "iptables", "ipset"),
    *("unshare", "nft", "ip"),
)


def missing() -> str:
    """Return why nodes cannot run here, or ""."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "nodes that run containers need root"
    if rows := sorted({row_of(name).name for name in PROGRAMS if find(name) is None}):
        return f'programs are missing: make tools ARGS="{" ".join(rows)}"'
    if not has_controllers_of_v1():
        return "nodes that run containers need the controllers of cgroup v1"
    return ""
