"""`KubeCluster`: a release of weft's Helm chart, used and scaled with the rights of its user.

It starts nothing: `helm install` does. It finds the release by the chart's labels, takes the
connection file of role client from the release's Secret, and reaches the scheduler by a port that
it forwards itself, or, inside of Kubernetes, by the Service. Pools of workers are Deployments; it
sets their numbers of pods. Which pods go when there are fewer is asked of the scheduler, as far as
the user may annotate pods; each of them gets SIGTERM, and finishes what it runs.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import logging
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ...client.asking import ask
from ...protocol.durations import seconds_or_none
from ...protocol.errors import ConfigError, WeftError, WorkerStartTimeout
from ...protocol.trust.connection_file import ConnectionFile
from ...protocol.wire.address import parse_address
from ..cluster import Cluster
from ..in_thread import in_thread
from .api import Kube
from .errors import KubernetesError, PodsNotReady
from .forwarding import Forward, PodPort
from .problems import problems_of

if TYPE_CHECKING:
    from ...client.client import Client
    from ...protocol.durations import Duration

_log = logging.getLogger("weft.cluster")

_WEFT: Final = "app.kubernetes.io/part-of=weft"
_INSTANCE: Final = "app.kubernetes.io/instance"
_COMPONENT: Final = "app.kubernetes.io/component"
_POOL: Final = "weft.io/pool"
#: Pods that are marked as the first to go.
_MAX_MARKED: Final = 50


@dataclass(slots=True)
class Pool:
    """A Deployment of workers: pods that it is to have, and workers in each of them."""

    name: str
    deployment: str
    replicas: int
    n_processes: int

    @property
    def n_workers(self) -> int:
        """The number of workers in all of its pods."""
        return self.replicas * self.n_processes


class KubeCluster(Cluster):
    """A weft cluster on Kubernetes, installed by Helm.

    Args:
        name: of the release.
        namespace: where it is; None = that of the context.
        pool: of workers, which `scale` and `adapt` change; None = the only one, or "default".
        context: of the kubeconfig; None = the current one.
        kubeconfig: path; None = `$KUBECONFIG`, `~/.kube/config`, or the service account of this
            pod.
        secret: name of the Secret with `client.json`; None = that of the release.
        forward: reach the scheduler by a forwarded port; None = if this is not a pod.
        asynchronous: for use in an event loop: `async with KubeCluster(..., asynchronous=True)`.

    Raises:
        ConfigError: there is no such release or pool (the text names those that there are), no
            kubeconfig, or the package `kubernetes` is missing.
        KubernetesError: a right is missing, or the API server does not answer.
    """

    def __init__(
        self,
        name: str,
        namespace: str | None = None,
        *,
        pool: str | None = None,
        context: str | None = None,
        kubeconfig: str | None = None,
        secret: str | None = None,
        forward: bool | None = None,
        asynchronous: bool = False,
    ) -> None:
        self.name = name
        self.asynchronous = asynchronous
        self.status = "created"
        self.scheduler_address = ""
        self._pages_address: str | None = None
        self.n_workers = 0
        self.threads_per_worker = 0
        self.memory_limit = 0
        self._pool = pool
        #: {name: pool}, as they were seen last
        self._pools: dict[str, Pool] = {}
        self._secret = secret
        self._forward: Forward | None = None
        self._wants_forward = forward
        self._port = 0
        self._closing = threading.Lock()
        self._kube: Kube | None = None
        self._options = (namespace, context, kubeconfig)
        if not asynchronous:
            self._open()

    def _open(self) -> None:
        try:
            self._kube = Kube(*self._options)
            self._find_release()
            self._find_pool()
            file = self._connection_file()
            self.security = file.to_security()
            address = parse_address(file.addresses[0])
            self._port = address.port or 0
            forward = self._wants_forward
            if forward or (forward is None and not self._kube.is_inside):
                self._forward = Forward(f"the scheduler of {self.name!r}", self._connect)
                self.scheduler_address = f"{address.scheme}://127.0.0.1:{self._forward.port}"
            else:
                self.scheduler_address = file.addresses[0]
                self._pages_address = file.dashboard or None
        except BaseException:
            self._close()
            raise
        self.status = "running"

    async def _open_async(self) -> KubeCluster:
        if self.status == "created":
            await in_thread(self._open)
        return self

    # --- Finding ----------------------------------------------------------------------------------

    @property
    def namespace(self) -> str:
        """The namespace of the release."""
        return self.kube.namespace

    @property
    def kube(self) -> Kube:
        """The API of Kubernetes, with the rights of the user."""
        if self._kube is None:
            raise ConfigError("this KubeCluster is closed, or was not opened: await it first")
        return self._kube

    def _selector(self, component: str) -> str:
        return f"{_WEFT},{_INSTANCE}={self.name},{_COMPONENT}={component}"

    def _find_release(self) -> None:
        found = self.kube.listed("statefulsets", f"{_WEFT},{_COMPONENT}=scheduler")
        names = sorted({one["metadata"]["labels"].get(_INSTANCE, "") for one in found})
        if self.name not in names:
            there = ", ".join(names) or "none"
            raise ConfigError(
                f"there is no release {self.name!r} of weft's chart in namespace "
                f"{self.namespace!r}; releases there: {there}. Give namespace=, or install it: "
                "helm install",
                "name",
            )

    @property
    def pools(self) -> dict[str, Pool]:
        """The pools of workers, by name."""
        found = {}
        for one in self.kube.listed("deployments", self._selector("worker")):
            spec = one["spec"]
            (container, *_) = spec["template"]["spec"]["containers"]
            arguments = container.get("args") or []
            numbers = [a.partition("=")[2] for a in arguments if a.startswith("--nworkers=")]
            n_processes = int(numbers[0]) if numbers and numbers[0].isdecimal() else 1
            pool = one["metadata"]["labels"].get(_POOL, one["metadata"]["name"])
            deployment, replicas = one["metadata"]["name"], spec.get("replicas", 1)
            found[pool] = Pool(pool, deployment, replicas, max(1, n_processes))
        return found

    def _find_pool(self, name: str | None = None) -> Pool:
        """Return a pool, and count the workers of all."""
        pools = self._pools = self.pools
        self.n_workers = sum(pool.n_workers for pool in pools.values())
        wanted = name or self._own_pool()
        pool = pools.get(wanted)
        if pool is None:
            raise ConfigError(
                f"release {self.name!r} has no pool {wanted!r}; its pools: "
                f"{', '.join(pools) or 'none'}",
                "pool",
            )
        return pool

    def _own_pool(self) -> str:
        """Return the name of the pool that is scaled unless another one is named."""
        return self._pool or ("default" if len(self._pools) != 1 else next(iter(self._pools)))

    def _connection_file(self) -> ConnectionFile:
        """Return the connection file of role client, from the Secret for users."""
        name = self._secret
        if name is None:
            statefulset = self.kube.listed("statefulsets", self._selector("scheduler"))[0]
            full = statefulset["metadata"]["name"].removesuffix("-scheduler")
            name = f"{full}-client"
        where = f"client.json of Secret {name!r} in namespace {self.namespace!r}"
        data = self.kube.secret(name)
        try:
            content = json.loads(base64.b64decode(data["client.json"]))
        except (KeyError, ValueError, binascii.Error) as error:
            raise ConfigError(
                f"{where} is missing or no connection file; name the Secret of role client by "
                "secret=",
                "secret",
            ) from error
        return ConnectionFile.from_plain(content, where)

    def _connect(self) -> PodPort:
        """Open a connection to the scheduler's pod."""
        kube = self.kube
        pods = [
            pod["metadata"]["name"]
            for pod in kube.listed("pods", self._selector("scheduler"))
            if not pod["metadata"].get("deletionTimestamp")
            and pod["status"].get("phase") == "Running"
        ]
        if not pods:
            raise KubernetesError("no pod of the scheduler runs; see KubeCluster.problems()")
        return kube.open_port(pods[0], self._port)

    # --- Use --------------------------------------------------------------------------------------

    @property
    def failure(self) -> str | None:
        """The reason why the cluster cannot be used any more; None while it can."""
        return "the KubeCluster was closed; make a new one" if self.status == "closed" else None

    def problems(self) -> list[str]:
        """Return what Kubernetes reports about pods that do not run, with what to do.

        Raises:
            KubernetesError: pods or events may not be listed.
        """
        kube = self.kube
        pods = kube.listed("pods", f"{_WEFT},{_INSTANCE}={self.name}")
        names = {pod["metadata"]["name"] for pod in pods}
        deployments = [pool.deployment for pool in self.pools.values()]
        events = [
            event
            for event in kube.listed("events")
            if (name := (event.get("involvedObject") or {}).get("name", "")) in names
            or any(name.startswith(f"{one}-") for one in deployments)
        ]
        return problems_of(pods, events)

    def wait_for_workers(
        self, n_workers: int | None = None, timeout: Duration | None = None
    ) -> Any:
        """Wait until `n_workers` (None = all) have joined.

        Raises:
            PodsNotReady: fewer had joined after `timeout`; the text has what Kubernetes reports.
        """
        timeout_s = seconds_or_none(timeout, "timeout")
        if self.asynchronous:
            return self._wait_async(n_workers, timeout_s)
        try:
            super().wait_for_workers(n_workers, timeout_s)
        except WorkerStartTimeout as error:
            raise self._with_problems(error) from None
        return None

    async def _wait_async(self, n_workers: int | None, timeout_s: float | None) -> None:
        late: WorkerStartTimeout
        try:
            await super().wait_for_workers(n_workers, timeout_s)
            return
        except WorkerStartTimeout as error:
            late = error
        found: list[PodsNotReady] = []
        await in_thread(lambda: found.append(self._with_problems(late)))
        raise found[0]

    def _with_problems(self, error: WorkerStartTimeout) -> PodsNotReady:
        try:
            problems = self.problems()
        except KubernetesError as refusal:
            problems = [str(refusal)]
        return PodsNotReady(error.wanted, error.arrived, error.timeout_s, problems)

    def get_logs(self, cluster: bool = True, scheduler: bool = True, workers: bool = True) -> Any:
        """Return the latest log lines of the pods: `{name of the pod: text}`.

        Args:
            cluster: accepted for compatibility with dask.
            scheduler: include the scheduler's.
            workers: include the workers'.
        """
        components = [c for c, wanted in (("scheduler", scheduler), ("worker", workers)) if wanted]

        def get() -> dict[str, str]:
            logs = {}
            for component in components:
                for pod in self.kube.listed("pods", self._selector(component)):
                    name = pod["metadata"]["name"]
                    try:
                        logs[name] = self.kube.log(name)
                    except KubernetesError as error:  # it has not started, or is gone
                        logs[name] = str(error)
            return logs

        return self._do(get)

    def _do(self, work: Callable[[], Any]) -> Any:
        """Do what blocks; an asynchronous cluster returns a coroutine."""
        if not self.asynchronous:
            return work()

        async def do() -> Any:
            found: list[Any] = []
            await in_thread(lambda: found.append(work()))
            return found[0]

        return do()

    # --- The number of workers --------------------------------------------------------------------

    def scale(
        self,
        n: int | None = None,
        memory: str | int | None = None,
        cores: int | None = None,
        *,
        pool: str | None = None,
    ) -> Any:
        """Have `n` workers in a pool soon. `wait_for_workers` waits until they have joined.

        Pods that are too many get SIGTERM, and their workers finish what they run, within the
        chart's grace period. An adaptation ends.

        Args:
            n: the number of workers; a pod has as many as the chart's `processes`.
            memory: not for this kind of cluster.
            cores: not for this kind of cluster.
            pool: its name; None = that of this object.

        Raises:
            ConfigError: there is no such pool, or no such number.
            KubernetesError: you may not scale Deployments.
        """
        if cores is not None:
            raise ConfigError("the threads of a pod are the chart's; give n=", "cores")
        n_wanted = self._count(n, memory, None)
        self._end_adaptation()

        async def scale(client: Client) -> None:
            await self._scale_pool(client, n_wanted, pool)

        return self._use(scale)

    async def _scale_to(self, client: Client, n: int) -> None:
        await self._scale_pool(client, n, None)

    def _scaled(self) -> tuple[int, int]:
        own = self._pools.get(self._own_pool())
        n = 0 if own is None else own.n_workers
        return n, self.n_workers - n

    def _rounded(self, n: int) -> int:
        own = self._pools.get(self._own_pool())
        n_processes = 1 if own is None else own.n_processes
        return math.ceil(n / n_processes) * n_processes

    async def _scale_pool(self, client: Client, n: int, name: str | None) -> None:
        order: list[str] = []
        with contextlib.suppress(WeftError):  # without it Kubernetes chooses
            async for page in ask(client._running(), "leaving_order"):
                order += page["names"]

        def scale() -> None:
            pool = self._find_pool(name)
            replicas = math.ceil(n / pool.n_processes)
            if replicas < pool.replicas:
                self._mark(pool.name, pool.replicas - replicas, order)
            if replicas != pool.replicas:
                self.kube.set_replicas(pool.deployment, replicas)
                self.n_workers -= pool.n_workers
                pool.replicas = replicas
                self.n_workers += pool.n_workers

        await in_thread(scale)

    def _mark(self, pool: str, n: int, order: list[str]) -> None:
        """Mark the pods of a pool that should go first: those whose workers' end costs least."""
        costs: dict[str, int] = {}
        selector = f"{self._selector('worker')},{_POOL}={pool}"
        pods = [pod["metadata"]["name"] for pod in self.kube.listed("pods", selector)]
        for pod in pods:
            ranks = [i for i, w in enumerate(order) if w == pod or w.startswith(f"{pod}-")]
            costs[pod] = max(ranks, default=-1)
        try:
            for pod in sorted(pods, key=costs.__getitem__)[: min(n, _MAX_MARKED)]:
                self.kube.set_deletion_cost(pod, costs[pod] - len(order) - 1)
        except KubernetesError as error:
            _log.info("Kubernetes chooses the pods that go: %s", error)

    # --- The end ----------------------------------------------------------------------------------

    def close(self) -> Any:
        """Let go of it: the release goes on. A second call does nothing."""
        if self.asynchronous:
            return self._close_async()
        self._close()
        return None

    async def _close_async(self) -> None:
        await self._end_adaptation_async()
        await in_thread(self._close)

    def _close(self) -> None:
        with self._closing:
            self._end_adaptation()
            self.status = "closed"
            forward, self._forward = self._forward, None
            if forward is not None:
                forward.close()
            kube, self._kube = self._kube, None
            if kube is not None:
                kube.close()

    def __repr__(self) -> str:
        return (
            f"<KubeCluster {self.name!r} {self.scheduler_address!r}: {self.status}, "
            f"workers={self.n_workers}>"
        )
