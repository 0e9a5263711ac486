"""`KubeCluster`: a release of weft's Helm chart, used and scaled with the rights of its user.

It starts nothing: `helm install` does. It finds the release by the chart's labels, takes the token
of role client from the Secret that the release names, and reaches the scheduler and its pages by
ports that it forwards itself, or, inside of Kubernetes, by the Service. Pools of workers are
Deployments; it sets their numbers of pods. Which pods go when there are fewer is asked of the
scheduler, as far as the user may annotate pods; each of them gets SIGTERM, and finishes what it
runs. Before that the scheduler is asked which pods may go without a loss, since Kubernetes ends a
pod whatever its workers have.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Collection, Container
from typing import TYPE_CHECKING, Any, Final, NoReturn

from ...client.cluster.scaling import let_drop
from ...client.dask.absent_names import unknown_option
from ...client.insight.asking import ask
from ...client.modes import Mode, as_result, waits
from ...protocol.errors import ConfigError, WeftError, WorkerStartTimeout
from ..cluster import Cluster
from ..processes.in_thread import in_thread
from .api import Kube
from .errors import KubernetesError, PodsNotReady
from .forwarding import Forward, PodPort
from .problems import problems_of
from .release import (
    SCHEDULERS,
    Pool,
    Release,
    cost_of,
    deletion_costs,
    pools_of,
    release_of,
    selector_of,
    workers_by_pod,
)

if TYPE_CHECKING:
    from ...client.client import Client

_log = logging.getLogger("weft.cluster")

#: Pods that are marked as the first to go.
_MAX_MARKED: Final = 50
#: Pods of which the scheduler is asked whether they may go.
_MAX_ASKED: Final = 1000
#: Phases of pods that no Deployment counts.
_OVER: Final = ("Failed", "Succeeded")
#: Time in seconds after which pods that were marked and have not ended keep their marks.
_MARKS_END_S: Final = 10.0
#: The ports of a release.
_SCHEDULER, _PAGES = 0, 1
#: HTTP status for a pod that has ended meanwhile.
_GONE: Final = 404


class KubeCluster(Cluster[Mode]):
    """A weft cluster on Kubernetes, installed by Helm.

    Args:
        name: of the release.
        namespace: where it is; None = that of the context.
        pool: of workers, which `scale` and `adapt` change; None = the only one, or "default".
        context: of the kubeconfig; None = the current one.
        kubeconfig: path; None = `$KUBECONFIG`, `~/.kube/config`, or the service account of this
            pod.
        secret: name of the Secret with the token of role client; None = the one that the release
            names.
        forward: reach the scheduler and its pages by forwarded ports; None = if this is not a pod.
        asynchronous: for use in an event loop: `async with KubeCluster(..., asynchronous=True)`.

    Raises:
        ConfigError: there is no such release or pool (the text names those that there are), no
            kubeconfig, or the package `kubernetes` is missing.
        KubernetesError: a right is missing, or the API server does not answer.
        PodsNotReady: by `wait_for_workers`, in the place of a `WorkerStartTimeout`; the text has
            what Kubernetes reports.
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
        self._forwards: list[Forward] = []
        self._wants_forward = forward
        self._closing = threading.Lock()
        self._kube: Kube | None = None
        self._options = (namespace, context, kubeconfig)
        if not asynchronous:
            self._open()

    def _open(self) -> None:
        try:
            self._kube = Kube(*self._options)
            place = f"namespace {self._kube.namespace!r}"
            hint = "Give namespace=, or install it: helm install"
            release = release_of(self._kube.listed("services", SCHEDULERS), self.name, place, hint)
            self._find_pool()
            secret = self._secret or release.secret
            forward = self._wants_forward
            address, pages = release.address, release.pages
            file = release.connection(self._kube.secret(secret), address, pages, secret)
            self.security = file.to_security()
            if forward or (forward is None and not self._kube.is_inside):
                address = f"tls://127.0.0.1:{self._forwarded(release, _SCHEDULER)}"
                pages = f"https://127.0.0.1:{self._forwarded(release, _PAGES)}/"
            self.scheduler_address, self._pages_address = address, pages
        except BaseException:
            self._close()
            raise
        self.status = "running"

    async def _open_async(self) -> KubeCluster[Mode]:
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

    @property
    def pools(self) -> dict[str, Pool]:
        """The pools of workers, by name."""
        return pools_of(self.kube.listed("deployments", selector_of(self.name, "worker")))

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

    def _forwarded(self, release: Release, index: int) -> int:
        """Return the number of a port of this machine that leads to one of the scheduler's pod."""
        what = ("the scheduler", "the status page")[index]
        forward = Forward(f"{what} of {self.name!r}", lambda: self._connect(release, index))
        self._forwards.append(forward)
        return forward.port

    def _connect(self, release: Release, index: int) -> PodPort:
        """Open a connection to a port of the scheduler's pod."""
        kube = self.kube
        for pod in kube.listed("pods", selector_of(self.name, "scheduler")):
            is_ending = pod["metadata"].get("deletionTimestamp")
            if not is_ending and pod["status"].get("phase") == "Running":
                return kube.open_port(pod["metadata"]["name"], release.pod_port(pod, index))
        raise KubernetesError("no pod of the scheduler runs; see KubeCluster.problems()")

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
        pods = kube.listed("pods", selector_of(self.name))
        names = {pod["metadata"]["name"] for pod in pods}
        deployments = [pool.deployment for pool in self.pools.values()]
        events = [
            event
            for event in kube.listed("events")
            if (name := (event.get("involvedObject") or {}).get("name", "")) in names
            or any(name.startswith(f"{one}-") for one in deployments)
        ]
        return problems_of(pods, events)

    async def _explained(self, error: WorkerStartTimeout) -> PodsNotReady:
        return await in_thread(lambda: self._with_problems(error))

    def _with_problems(self, error: WorkerStartTimeout) -> PodsNotReady:
        try:
            problems = self.problems()
        except KubernetesError as refusal:
            problems = [str(refusal)]
        return PodsNotReady(error.wanted, error.arrived, error.timeout_s, problems)

    @waits
    def get_logs(
        self, cluster: bool = True, scheduler: bool = True, workers: bool = True
    ) -> dict[str, str]:
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
                for pod in self.kube.listed("pods", selector_of(self.name, component)):
                    name = pod["metadata"]["name"]
                    try:
                        logs[name] = self.kube.log(name)
                    except KubernetesError as error:  # it has not started, or is gone
                        logs[name] = str(error)
            return logs

        return as_result(in_thread(get)) if self.asynchronous else get()

    # --- The number of workers --------------------------------------------------------------------

    @waits
    def scale(
        self,
        /,
        n: int | None = None,
        memory: str | int | None = None,
        cores: int | None = None,
        *,
        drop: bool = False,
        pool: str | None = None,
        **others: NoReturn,
    ) -> None:
        """Have `n` workers in a pool soon. `wait_for_workers` waits until they have joined.

        Pods that are too many get SIGTERM. Their workers finish what they run and give away what
        only they have, within the chart's grace period. If the others have no room for it, or it
        is an actor, the pod is kept, which is logged. An adaptation ends.

        Args:
            n: the number of workers; a pod has as many as the chart's `processes`.
            memory: not for this kind of cluster.
            cores: not for this kind of cluster.
            drop: keep no pod because of results or actors, which are lost then.
            pool: its name; None = that of this object.
            others: there are no others.

        Raises:
            ConfigError: there is no such pool, or no such number.
            KubernetesError: you may not scale Deployments.
        """
        for name in others:
            raise unknown_option(name, KubeCluster.scale)
        if cores is not None:
            raise ConfigError("the threads of a pod are the chart's; give n=", "cores")
        n_wanted = self._count(n, memory, None)
        self._end_adaptation()

        async def scale(client: Client) -> None:
            kept = await self._scale_pool(client, n_wanted, pool, "drop" if drop else "keep")
            self._warn_of(kept)

        return self._use(scale)

    async def _scale_to(self, client: Client, n: int, losses: str = "keep") -> list[str]:
        return await self._scale_pool(client, n, None, losses)

    def _scaled(self) -> tuple[int, int]:
        own = self._pools.get(self._own_pool())
        n = 0 if own is None else own.n_workers
        return n, self.n_workers - n

    def _rounded(self, n: int) -> int:
        own = self._pools.get(self._own_pool())
        n_processes = 1 if own is None else own.n_processes
        return math.ceil(n / n_processes) * n_processes

    async def _scale_pool(self, client: Client, n: int, name: str | None, losses: str) -> list[str]:
        """Have `n` workers in a pool; return why workers stay that are too many."""
        order: list[str] = []
        with contextlib.suppress(WeftError):  # without it Kubernetes chooses
            async for page in ask(client._running(), "leaving_order"):
                order += page["names"]
        pool = await in_thread(lambda: self._find_pool(name))
        n_fewer = pool.replicas - math.ceil(n / pool.n_processes)
        if n_fewer <= 0:
            await in_thread(lambda: self._set_replicas(pool, pool.replicas - n_fewer))
            return []
        before = await in_thread(lambda: self._staying(pool))
        workers = {pod: [*own] for pod, own in workers_by_pod(before, order).items()}
        n_going, kept = n_fewer, dict[str, str]()
        if losses != "drop":
            n_going, kept = await self._kept(client, workers, n_fewer)
        staying = await in_thread(lambda: self._shrink(pool, n_going, order, kept))
        if losses == "drop":
            gone = [w for pod in workers if pod not in staying for w in workers[pod]]
            await self._let_drop(client, gone)
        n_kept = (pool.replicas - math.ceil(n / pool.n_processes)) * pool.n_processes
        reasons = [f"{pod}: {why}" for pod, why in kept.items()]
        return (reasons + reasons[-1:] * n_kept)[:n_kept]  # one for each worker

    async def _kept(
        self, client: Client, workers: dict[str, list[str]], n: int
    ) -> tuple[int, dict[str, str]]:
        """Return how many of `n` pods may go so that nothing is lost, and why others must stay."""
        pods = [*workers][:_MAX_ASKED]
        arguments = {"groups": [workers[pod] for pod in pods], "n": n}
        with contextlib.suppress(WeftError):  # a scheduler of an earlier release does not know
            async for page in ask(client._running(), "leaving_losses", arguments):
                kept = {pods[i]: reason for i, reason in page["kept"]}
                return (min(len(page["leaving"]), _MAX_MARKED) if kept else n), kept
        return n, {}

    def _shrink(self, pool: Pool, n: int, order: list[str], kept: Collection[str]) -> list[str]:
        """Let `n` pods of a pool go, none of those that are kept; return the names of the others.

        Without the right to mark them Kubernetes chooses, so none goes while some are to be kept.
        """
        marks = self._mark(pool, n, order, kept)
        self._set_replicas(pool, pool.replicas - (0 if marks is None and kept else n))
        return self._unmark(pool, marks or {})

    async def _let_drop(self, client: Client, workers: list[str]) -> None:
        """Let workers go at once whose pods are being ended, although they hold results."""
        with contextlib.suppress(WeftError):  # else they go with their grace period
            await let_drop(client._running(), lambda worker: worker["name"] in workers)

    def _set_replicas(self, pool: Pool, n: int) -> None:
        if n != pool.replicas:
            self.kube.set_replicas(pool.deployment, n)
            self.n_workers -= pool.n_workers
            pool.replicas = n
            self.n_workers += pool.n_workers

    def _staying(self, pool: Pool) -> list[dict[str, Any]]:
        """Return the pods of a pool that count: neither ending nor over, as evicted ones are."""
        pods = self.kube.listed("pods", selector_of(self.name, "worker", pool.name))
        return [
            pod
            for pod in pods
            if not pod["metadata"].get("deletionTimestamp")
            and pod.get("status", {}).get("phase") not in _OVER
        ]

    def _mark(
        self, pool: Pool, n: int, order: list[str], kept: Container[str] = ()
    ) -> dict[str, str | None] | None:
        """Mark the pods of a pool that should go first: those whose workers' end costs least.

        Return what was set; None = you may not annotate pods.
        """
        n = min(n, _MAX_MARKED)
        costs = deletion_costs(self._staying(pool), n, order, pool.deletion_cost, kept)
        return costs if self._set_costs(costs) else None

    def _unmark(self, pool: Pool, marks: dict[str, str | None]) -> list[str]:
        """Take the marks from pods that have stayed, or the next call that scales would stop them.

        Marks that another user has set meanwhile stay. Return the names of the pods that stayed.
        """
        waiting = threading.Event()
        end_s = time.monotonic() + _MARKS_END_S
        while len(pods := self._staying(pool)) > pool.replicas and time.monotonic() < end_s:
            waiting.wait(0.2)
        if len(pods) <= pool.replicas:
            own = [pod for pod in pods if cost_of(pod) == marks.get(pod["metadata"]["name"])]
            self._set_costs(deletion_costs(own, 0, (), pool.deletion_cost))
        return [pod["metadata"]["name"] for pod in pods]

    def _set_costs(self, costs: dict[str, str | None]) -> bool:
        """Set the costs of pods; False = you may not."""
        for pod, cost in costs.items():
            try:
                self.kube.set_deletion_cost(pod, cost)
            except KubernetesError as error:
                if error.status == _GONE:
                    continue
                _log.info("Kubernetes chooses the pods that go: %s", error)
                return False
        return True

    # --- The end ----------------------------------------------------------------------------------

    @waits
    def close(self) -> None:
        """Let go of it: the release goes on. A second call does nothing."""
        if self.asynchronous:
            return as_result(self._close_async())
        self._close()
        return None

    async def _close_async(self) -> None:
        await self._end_adaptation_async()
        await in_thread(self._close)

    def _close(self) -> None:
        with self._closing:
            self._end_adaptation()
            self.status = "closed"
            forwards, self._forwards = self._forwards, []
            for forward in forwards:
                forward.close()
            kube, self._kube = self._kube, None
            if kube is not None:
                kube.close()

    def __repr__(self) -> str:
        return (
            f"<KubeCluster {self.name!r} {self.scheduler_address!r}: {self.status}, "
            f"workers={self.n_workers}>"
        )
