"""A release of weft's Helm chart: how it is found, and what its objects say of it.

The objects are plain dicts, as the API has them. Who gets them is another matter: `KubeCluster` by
the official client of Python, which a pod or a notebook has, and `weft connect` by kubectl, which a
user has who looks after the release. All that they must know of the chart is here.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import json
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ...protocol.errors import ConfigError
from ...protocol.trust.connection_file import ConnectionFile

PART: Final = "app.kubernetes.io/part-of=weft"
INSTANCE: Final = "app.kubernetes.io/instance"
COMPONENT: Final = "app.kubernetes.io/component"
POOL: Final = "weft.io/pool"
#: Selects the Services of the schedulers of all releases.
SCHEDULERS: Final = f"{PART},{COMPONENT}=scheduler"
#: The annotation of such a Service with the name of the Secret for users.
CLIENT_SECRET: Final = "weft.io/client-secret"
#: Of two pods Kubernetes stops the one with the lower number in this annotation first.
DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
_SCHEDULER_PORT, _PAGES_PORT = "tls-weft", "https-pages"


def selector_of(release: str, component: str = "", pool: str = "") -> str:
    """Return the selector of a release's objects, or of those of one component or pool."""
    parts = [PART, f"{INSTANCE}={release}"]
    parts += [f"{COMPONENT}={component}"] if component else []
    parts += [f"{POOL}={pool}"] if pool else []
    return ",".join(parts)


@dataclass(frozen=True)
class Release:
    """A release as the Service of its scheduler describes it.

    Args:
        name: of the release.
        namespace: where it is.
        service: the name of the Service.
        secret: the name of the Secret from which users take the token of role client.
        ports: those of the Service: the scheduler's, and that of its pages.
        targets: to what these lead: names or numbers of ports of the pod.
    """

    name: str
    namespace: str
    service: str
    secret: str
    ports: tuple[int, int]
    targets: tuple[str | int, str | int]

    @property
    def address(self) -> str:
        """The scheduler's address for pods."""
        return f"tls://{self.service}.{self.namespace}.svc:{self.ports[0]}"

    @property
    def pages(self) -> str:
        """The address of the pages for pods."""
        return f"https://{self.service}.{self.namespace}.svc:{self.ports[1]}/"

    def pod_port(self, pod: Mapping[str, Any], index: int) -> int:
        """Return the number of the port of a pod to which `ports[index]` leads."""
        target = self.targets[index]
        if isinstance(target, int):
            return target
        for container in pod["spec"]["containers"]:
            for port in container.get("ports") or ():
                if port.get("name") == target:
                    return int(port["containerPort"])
        return self.ports[index]

    def connection(
        self, data: Mapping[str, str], address: str, pages: str, secret: str = ""
    ) -> ConnectionFile:
        """Return a connection file with the token of role client.

        It has no cluster id where the Secret has none.

        Args:
            data: of the Secret, in base64.
            address: at which the client reaches the scheduler.
            pages: at which a browser reaches the pages.
            secret: the name of the Secret; "" = that of the release.

        Raises:
            ConfigError: the Secret is not one of weft.
        """
        where = f"Secret {secret or self.secret!r} in namespace {self.namespace!r}"
        try:
            if "client.json" in data:
                content = json.loads(base64.b64decode(data["client.json"]))
                file = ConnectionFile.from_plain(content, f"client.json of {where}")
            else:
                token = base64.b64decode(data["client-token"]).decode().strip()
                cluster = base64.b64decode(data.get("cluster-id", "")).decode().strip()
                file = ConnectionFile(cluster_id=cluster, addresses=(address,), token=token)
                file.to_security()
        except (KeyError, ValueError, binascii.Error):
            keys = ", ".join(sorted(data)) or "none"
            raise ConfigError(
                f"{where} has no client.json and no client-token that can be read; its keys: "
                f"{keys}. Compare it with the Secret that 'weft secret' prints"
            ) from None
        return dataclasses.replace(file, addresses=(address,), dashboard=pages)


def release_of(services: Iterable[Mapping[str, Any]], name: str, place: str, hint: str) -> Release:
    """Return the release called `name`.

    Args:
        services: those that `SCHEDULERS` selects.
        name: of the release.
        place: where they are, for the error.
        hint: what to do if it is not among them.

    Raises:
        ConfigError: there is none; the text has those that there are.
    """
    names = set()
    for service in services:
        metadata = service["metadata"]
        secret = (metadata.get("annotations") or {}).get(CLIENT_SECRET)
        ports = {port.get("name"): port for port in service["spec"].get("ports") or ()}
        if secret is None or not {_SCHEDULER_PORT, _PAGES_PORT} <= ports.keys():
            continue  # its headless twin
        instance = metadata["labels"].get(INSTANCE, "")
        names.add(instance)
        if instance == name:
            scheduler, pages = ports[_SCHEDULER_PORT], ports[_PAGES_PORT]
            return Release(
                name,
                metadata["namespace"],
                metadata["name"],
                secret,
                (int(scheduler["port"]), int(pages["port"])),
                (_target(scheduler), _target(pages)),
            )
    there = ", ".join(sorted(names)) or "none"
    raise ConfigError(
        f"there is no release {name!r} of weft's chart in {place}; releases there: {there}. {hint}",
        "name",
    )


def _target(port: Mapping[str, Any]) -> str | int:
    target: str | int = port.get("targetPort") or port["port"]
    return target


@dataclass(slots=True)
class Pool:
    """A Deployment of workers: pods that it is to have, and workers in each of them."""

    name: str
    deployment: str
    replicas: int
    n_processes: int
    #: The cost that the chart's values give to each of its pods, None = none.
    deletion_cost: str | None = None

    @property
    def n_workers(self) -> int:
        """The number of workers in all of its pods."""
        return self.replicas * self.n_processes


def pools_of(deployments: Iterable[Mapping[str, Any]]) -> dict[str, Pool]:
    """Return the pools of workers, by name."""
    found = {}
    for one in deployments:
        spec, name = one["spec"], one["metadata"]["name"]
        template = spec["template"]
        pool = one["metadata"]["labels"].get(POOL, name)
        annotations = (template.get("metadata") or {}).get("annotations") or {}
        found[pool] = Pool(
            pool,
            name,
            spec.get("replicas", 1),
            _n_processes(template["spec"]["containers"][0].get("args") or []),
            annotations.get(DELETION_COST),
        )
    return found


def _n_processes(arguments: Sequence[str]) -> int:
    numbers = [a.partition("=")[2] for a in arguments if a.startswith("--nworkers=")]
    return max(1, int(numbers[0])) if numbers and numbers[0].isdecimal() else 1


def cost_of(pod: Mapping[str, Any]) -> str | None:
    """Return the deletion cost of a pod; None if it has none."""
    cost: str | None = (pod["metadata"].get("annotations") or {}).get(DELETION_COST)
    return cost


def is_worker_of(worker: str, pod: str) -> bool:
    """Return whether a worker of this name is one of a pod's."""
    return worker == pod or worker.startswith(f"{pod}-")


def workers_by_pod(
    pods: Iterable[Mapping[str, Any]], order: Sequence[str]
) -> dict[str, dict[str, int]]:
    """Return `{pod: {its workers: their places in the order}}`, first those that should go first.

    Args:
        pods: of one pool.
        order: names of workers, first those whose end costs least.
    """
    found = {
        name: {w: i for i, w in enumerate(order) if is_worker_of(w, name)}
        for name in (pod["metadata"]["name"] for pod in pods)
    }
    return dict(sorted(found.items(), key=lambda item: max(item[1].values(), default=-1)))


def deletion_costs(
    pods: Sequence[Mapping[str, Any]],
    n: int,
    order: Sequence[str],
    usual: str | None,
    kept: Container[str] = (),
) -> dict[str, str | None]:
    """Return the costs of pods that have to change so that `n` of them go first: {pod: cost}.

    Pods that were marked before and are not to go get the usual cost back.

    Args:
        pods: of one pool.
        n: how many are to go.
        order: names of workers, first those whose end costs least.
        usual: the cost of pods that are not marked, None = none.
        kept: names of pods that are not to go.
    """
    present = {pod["metadata"]["name"]: cost_of(pod) for pod in pods}
    ranks = {
        name: max(workers.values(), default=-1)
        for name, workers in workers_by_pod(pods, order).items()
    }
    going = [name for name in ranks if name not in kept][:n]
    wanted: dict[str, str | None] = dict.fromkeys(present, usual)
    wanted |= {name: str(ranks[name] - len(order) - 1) for name in going}
    return {name: cost for name, cost in wanted.items() if cost != present[name]}
