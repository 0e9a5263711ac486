"""The table of the programs that tests need: name, pinned version, and how each is made.

A row is what is installed together. `provides` lists the names that `tool(name)` finds: programs,
or folders of files.
"""

from __future__ import annotations

from dataclasses import dataclass

#: The version of Kubernetes whose API server, controllers and schemas the tests use.
KUBERNETES = "v1.34.4"
_K8S = KUBERNETES.split(".")


@dataclass(frozen=True)
class Apt:
    """Packages of Debian or Ubuntu; the distribution chooses the version, and updates it."""

    packages: tuple[str, ...]


@dataclass(frozen=True)
class GoInstall:
    """`go install PACKAGE@VERSION`, of a module whose go.mod replaces nothing."""

    package: str
    ldflags: str = ""


@dataclass(frozen=True)
class GoModule:
    """`go build` of packages in a module of our own, as k8s.io/kubernetes and etcd need it.

    Those modules replace their parts by folders that the Go proxy does not carry. Ours takes the
    releases of the parts instead; for Kubernetes their version is `v0` and the rest of its own.
    """

    module: str
    packages: tuple[str, ...]
    ldflags: str = ""
    #: The name of the program, where it is not that of the only package.
    program: str = ""


@dataclass(frozen=True)
class GoSource:
    """`go build` of packages in a folder beside this file, which is a module."""

    folder: str
    packages: tuple[str, ...]


@dataclass(frozen=True)
class GoFiles:
    """Files of a Go module: {name within the module: name in the folder}; nothing is built."""

    module: str
    files: dict[str, str]


@dataclass(frozen=True)
class Npm:
    """A package of npm, with its dependencies; no script of a package is run."""

    package: str


How = Apt | GoInstall | GoModule | GoSource | GoFiles | Npm


@dataclass(frozen=True)
class Tool:
    """One row."""

    name: str
    #: The version that is installed. For Apt: the one that the tests were written with.
    version: str
    #: Minutes on two cores with empty caches, measured, to print what to expect.
    minutes: float
    how: How
    provides: tuple[str, ...]
    #: Installed only when it is named: no test of the usual runs needs it.
    when_named: bool = False


def _version_flags(*variables: str) -> str:
    """Return linker flags that set each `package.prefix` to the version of Kubernetes."""
    parts = {"Major": _K8S[0].removeprefix("v"), "Minor": _K8S[1]}
    return " ".join(f"-X {v}{part}={value}" for v in variables for part, value in parts.items())


_RELEASE = " ".join(
    f"-X {package}.gitVersion={KUBERNETES} {_version_flags(f'{package}.git')}"
    for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
)

TOOLS = (
    Tool(
        "helm",
        "v3.22.0",
        2.5,
        # Without these flags `helm template` renders for Kubernetes 1.20.
        GoInstall(
            "helm.sh/helm/v3/cmd/helm",
            "-s -w -X helm.sh/helm/v3/internal/version.version=v3.22.0 "
            + _version_flags(
                "helm.sh/helm/v3/pkg/chartutil.k8sVersion",
                "helm.sh/helm/v3/pkg/lint/rules.k8sVersion",
            ),
        ),
        ("helm",),
    ),
    Tool(
        "helm-docs",
        "v1.14.2",
        0.3,
        GoInstall("github.com/norwoodj/helm-docs/cmd/helm-docs"),
        ("helm-docs",),
    ),
    Tool(
        "kubernetes",
        KUBERNETES,
        4,
        GoModule(
            "k8s.io/kubernetes",
            (
                "cmd/kube-apiserver",
                "cmd/kube-controller-manager",
                "cmd/kube-scheduler",
                "cmd/kubectl",
            ),
            f"-s -w {_RELEASE}",
        ),
        ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"),
    ),
    Tool("kwok", "v0.8.0", 1.5, GoInstall("sigs.k8s.io/kwok/cmd/kwok"), ("kwok",)),
    Tool(
        "kwok-stages",
        "v0.8.0",
        0.1,
        GoFiles(
            "sigs.k8s.io/kwok",
            {
                "kustomize/stage/node/fast": "stages/node",
                "kustomize/stage/pod/fast": "stages/pod",
            },
        ),
        ("stages",),
    ),
    Tool(
        "keda-crds",
        "v2.21.0",
        0.1,
        GoFiles("github.com/kedacore/keda/v2", {"config/crd/bases": "keda-crds"}),
        ("keda-crds",),
    ),
    Tool(
        "prometheus-operator-crds",
        "v0.85.0",
        0.1,
        GoFiles(
            "github.com/prometheus-operator/prometheus-operator",
            {"example/prometheus-operator-crd": "prometheus-operator-crds"},
        ),
        ("prometheus-operator-crds",),
    ),
    Tool(
        "cert-manager-crds",
        "v1.18.2",
        0.1,
        GoFiles("github.com/cert-manager/cert-manager", {"deploy/crds": "cert-manager-crds"}),
        ("cert-manager-crds",),
    ),
    # That of Debian 12 is 3.4, which does not stream lists: clients wait 30 s before they notice.
    Tool(
        "etcd",
        "v3.6.4",
        0.8,
        GoModule("go.etcd.io/etcd/server/v3", ("",), "-s -w", program="etcd"),
        ("etcd",),
    ),
    Tool("nftables", "1.0.6", 0.1, Apt(("nftables", "iproute2")), ("nft", "ip")),
    Tool("prometheus", "2.42.0", 0.3, Apt(("prometheus",)), ("prometheus", "promtool")),
    Tool(
        "chromium",
        "156",
        1,
        Apt(("chromium", "chromium-driver")),
        ("chromium", "chromedriver"),
    ),
    Tool("openssh", "9.2", 0.2, Apt(("openssh-server", "openssh-client")), ("sshd", "ssh")),
    Tool(
        "slurm",
        "22.05.8",
        0.4,
        Apt(("slurm-wlm", "munge", "slurm-wlm-basic-plugins")),
        ("slurmctld", "slurmd", "sbatch", "munged"),
    ),
    Tool(
        "gridengine",
        "8.1.9",
        0.4,
        Apt(("gridengine-master", "gridengine-exec", "gridengine-client")),
        ("sge_qmaster", "sge_execd", "qsub", "qacct"),
    ),
    # Nodes that run containers: tests/kube/containers.
    Tool(
        "kubernetes-node",
        KUBERNETES,
        4,
        GoModule("k8s.io/kubernetes", ("cmd/kubelet", "cmd/kube-proxy"), f"-s -w {_RELEASE}"),
        ("kubelet", "kube-proxy"),
        when_named=True,
    ),
    # The cluster's DNS, and what enforces NetworkPolicies.
    Tool(
        "node-programs",
        "1",
        1.5,
        GoSource("node", ("dns", "policies")),
        ("dns", "policies"),
        when_named=True,
    ),
    Tool(
        "containers",
        "1.6.20",
        0.3,
        Apt(
            (
                *("containerd", "runc", "containernetworking-plugins", "buildah", "mmdebstrap"),
                *("iptables", "ipset", "iproute2", "nftables", "util-linux"),
            )
        ),
        ("containerd", "ctr", "runc", "buildah", "mmdebstrap", "iptables", "ipset", "unshare"),
        when_named=True,
    ),
    Tool("systemd", "252", 0.2, Apt(("systemd",)), ("systemd-analyze",)),
    Tool("typescript", "5.9.3", 0.2, Npm("typescript"), ("typescript",)),
    Tool("grafana-schema", "13.2.3", 0.3, Npm("@grafana/schema"), ("@grafana/schema",)),
)


def row_of(name: str) -> Tool:
    """Return the row with this name, or which provides it; KeyError lists what there is."""
    for tool in TOOLS:
        if name == tool.name or name in tool.provides:
            return tool
    names = sorted({tool.name for tool in TOOLS} | {n for tool in TOOLS for n in tool.provides})
    raise KeyError(f"no tool {name!r} in tests/tools/table.py; there are: {', '.join(names)}")
