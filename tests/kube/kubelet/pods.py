"""The life of one pod on a node: one thread, which an update of the pod or a probe wakes."""

from __future__ import annotations

import contextlib
import queue
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from tests.kube.api import Api, ApiError, Object
from tests.kube.kubelet.containers import Container, SpecError, enter, kill, start
from tests.kube.kubelet.environment import environment_of
from tests.kube.kubelet.network import Namespace, Network
from tests.kube.kubelet.probes import Probe
from tests.kube.kubelet.volumes import VolumeError, make_volume

#: How often a thread looks whether its processes have ended.
_POLL_S = 0.05
#: Pauses before restarts after the first, which is at once. Kubernetes begins with 10 s.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0


def now() -> str:
    """Return the time as Kubernetes writes it."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


class PodLife:
    """A pod that was bound to a node, until it is gone."""

    def __init__(
        self,
        pod: Object,
        *,
        api: Api,
        network: Network,
        folder: Path,
        image: list[list[str]],
        images: set[str],
        node: dict[str, str],
        ended: Callable[[str], None],
    ) -> None:
        """Start its thread; `ended(uid)` is called at the end of it."""
        self.pod, self._api, self._network, self._image = pod, api, network, image
        self._images, self._node, self._ended = images, node, ended
        metadata = pod["metadata"]
        self.uid: str = metadata["uid"]
        self.name: str = metadata["name"]
        self.namespace: str = metadata["namespace"]
        self._path = f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"
        self.folder = folder / self.uid
        self.address = ""
        self.network: Namespace | None = None
        self._volumes: dict[str, Path] = {}
        self._inbox: queue.Queue[tuple[str, Any]] = queue.Queue()
        self._probes: dict[str, list[Probe]] = {}
        self._reported: Object = {}
        self._conditions: dict[str, tuple[str, str]] = {}
        self._began = now()
        make = [Container(spec, self.folder) for spec in pod["spec"].get("initContainers", [])]
        self.init = make
        self.containers = [Container(spec, self.folder) for spec in pod["spec"]["containers"]]
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name=f"pod {self.name}")
        self._thread.start()

    # --- from other threads ---------------------------------------------------------------------

    def changed(self, pod: Object) -> None:
        """Note a new version of the pod."""
        self._inbox.put(("changed", pod))

    def removed(self) -> None:
        """Note that the object is gone: its processes are killed."""
        self._inbox.put(("removed", None))

    def join(self) -> None:
        """Wait for the end of its thread."""
        self._thread.join()

    def container(self, name: str) -> Container:
        """Return a container by its name; KeyError."""
        for container in [*self.containers, *self.init]:
            if container.name == name:
                return container
        raise KeyError(name)

    # --- its thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._live()
        except ApiError as error:
            if error.code not in {404, 409}:  # the object has been removed
                raise
        finally:
            for container in [*self.init, *self.containers]:
                self._stop_probes(container)
                kill(container)
                if container.process is not None:
                    container.process.wait()
            if self.network is not None:
                self._network.remove_pod(self.network, self._hosts)
            shutil.rmtree(self.folder, ignore_errors=True)
            self._ended(self.uid)

    @property
    def _hosts(self) -> Path:
        return self.folder / "hosts"

    def _live(self) -> None:
        self.folder.mkdir(parents=True)
        self.folder.chmod(0o755)
        if not self._set_up():
            return
        while not self._is_over:
            if self._advance():
                self._report()
            self._read_inbox(_POLL_S)
            if self.pod["metadata"].get("deletionTimestamp"):
                self._terminate()
                return
        # Its containers have ended for good; the object stays until someone removes it.
        while not self.pod["metadata"].get("deletionTimestamp"):
            self._read_inbox(None)
            if self._is_gone:
                return
        self._remove_object()

    _is_gone = False

    def _read_inbox(self, timeout_s: float | None) -> None:
        """Handle what has come, after waiting for the first of it."""
        try:
            message, value = self._inbox.get(timeout=timeout_s)
            while True:
                if message == "removed":
                    self._is_gone = self._is_over = True
                elif message == "changed":
                    self.pod = value
                else:
                    self._probed(message, *value)
                message, value = self._inbox.get_nowait()
        except queue.Empty:
            return

    def _set_up(self) -> bool:
        """Check images, mount volumes, make the network; False if the pod is gone before that."""
        strange = [
            c
            for c in [*self.init, *self.containers]
            if _name_of(c.spec["image"]) not in self._images
        ]
        for container in strange:
            image = container.spec["image"]
            self._event("Warning", "Failed", f'Failed to pull image "{image}": not found')
            container.waiting = ("ErrImagePull", f'failed to pull image "{image}": not found')
        if strange:
            self._report()
            for container in strange:
                text = f'Back-off pulling image "{container.spec["image"]}"'
                container.waiting = ("ImagePullBackOff", text)
                self._event("Normal", "BackOff", text)
            self._report()
            return self._wait_for_end()
        self.network, self.address, _ = self._network.add_pod()
        own_line = f"{self.address} {self.pod['spec'].get('hostname') or self.name}"
        if self.pod["spec"].get("subdomain") and self.pod["spec"].get("hostname"):
            full = (
                f"{self.pod['spec']['hostname']}.{self.pod['spec']['subdomain']}.{self.namespace}"
            )
            own_line = f"{self.address} {full}.svc.cluster.local {self.pod['spec']['hostname']}"
        self._network.add_hosts(self._hosts, self.namespace, own_line)
        failed = ""
        while True:
            try:
                for volume in self.pod["spec"].get("volumes", []):
                    if volume["name"] not in self._volumes:
                        folder = self.folder / "volumes"
                        folder.mkdir(exist_ok=True)
                        made = make_volume(self._api, self.pod, volume, folder)
                        self._volumes[volume["name"]] = made
            except VolumeError as error:
                if str(error) != failed:
                    failed = str(error)
                    text = f"MountVolume.SetUp failed: {failed}"
                    self._event("Warning", "FailedMount", text)
                    self._report()
                self._read_inbox(1.0)
                if self.pod["metadata"].get("deletionTimestamp"):
                    self._remove_object()
                    return False
                if self._is_gone:
                    return False
            else:
                return True

    def _wait_for_end(self) -> bool:
        while not self.pod["metadata"].get("deletionTimestamp"):
            self._read_inbox(None)
            if self._is_gone:
                return False
        self._remove_object()
        return False

    # --- containers -----------------------------------------------------------------------------

    def _advance(self) -> bool:
        """Do what is due; return whether anything changed."""
        changed = False
        for container in self.init:
            changed |= self._look_after(container, again=self._policy != "Never")
            if not container.is_final or (container.last or {}).get("exitCode"):
                if container.is_final:
                    self._is_over = True
                return changed
        for container in self.containers:
            changed |= self._look_after(container, again=self._policy == "Always")
        self._is_over = all(container.is_final for container in self.containers)
        return changed

    @property
    def _policy(self) -> str:
        return str(self.pod["spec"].get("restartPolicy", "Always"))

    def _look_after(self, container: Container, again: bool) -> bool:
        if container.is_final or container.is_running:
            return False
        if container.process is not None:
            self._note_end(container)
            code = (container.last or {})["exitCode"]
            is_init = container in self.init
            container.is_final = not again and (code == 0 or self._policy != "OnFailure")
            container.is_final |= is_init and code == 0
            if not container.is_final:
                text = f"back-off {container.pause_s:g}s restarting failed container"
                container.waiting = ("CrashLoopBackOff", text)
                container.due = time.monotonic() + container.pause_s
                if container.pause_s:
                    self._event("Warning", "BackOff", f"Back-off restarting {container.name}")
                doubled = max(_FIRST_PAUSE_S, 2 * container.pause_s)
                container.pause_s = min(doubled, _LONGEST_PAUSE_S)
            return True
        if time.monotonic() < container.due:
            return False
        self._start(container)
        return True

    def _note_end(self, container: Container) -> None:
        """Reap the process and keep how it ended."""
        assert container.process is not None
        code = container.process.wait()
        self._stop_probes(container)
        container.process = None
        container.ready = container.started = False
        # A launcher that was killed has killed its container.
        code = 137 if code == -signal.SIGKILL else code
        container.last = {
            "exitCode": code,
            "reason": "Completed" if code == 0 else "Error",
            "startedAt": container.started_at,
            "finishedAt": now(),
            "containerID": f"process://{self.uid}/{container.name}/{container.n_restarts}",
        }

    def _start(self, container: Container) -> None:
        try:
            environment = environment_of(
                self._api,
                self.pod,
                container.spec,
                {"podIP": self.address, "podIPs": [{"ip": self.address}], "hostIP": "127.0.0.1"},
                self._node,
                self._network.services_of(self.namespace),
            )
            assert self.network is not None
            start(
                container,
                self.pod,
                image=self._image,
                network=self.network.path,
                hosts=self._hosts,
                volumes=self._volumes,
                environment=environment,
            )
        except (SpecError, VolumeError) as error:
            container.waiting = ("CreateContainerConfigError", str(error))
            container.due = time.monotonic() + _FIRST_PAUSE_S
            self._event("Warning", "Failed", f"Error: {error}")
            return
        container.started_at = now()
        self._event("Normal", "Started", f"Started container {container.name}")
        kinds = ["startupProbe"] if "startupProbe" in container.spec else list(_LATER_PROBES)
        self._start_probes(container, kinds)

    def _start_probes(self, container: Container, kinds: list[str]) -> None:
        for kind in kinds:
            if kind in container.spec:
                assert self.network is not None
                self._probes.setdefault(container.name, []).append(
                    Probe(
                        kind,
                        container.spec[kind],
                        container,
                        self.network,
                        self.address,
                        # Of this process: what a probe of an earlier one reports is dropped.
                        lambda k, ok, why, n=container.n_restarts: self._inbox.put(  # type: ignore[misc]
                            (container.name, (n, k, ok, why))
                        ),
                    )
                )

    def _stop_probes(self, container: Container) -> None:
        probes = self._probes.pop(container.name, [])
        for probe in probes:
            probe.stop()
        for probe in probes:
            probe.join()

    def _probed(self, name: str, n_restarts: int, kind: str, succeeded: bool, why: str) -> None:
        container = self.container(name)
        if container.n_restarts != n_restarts or not container.is_running:
            return
        if not succeeded:
            self._event("Warning", "Unhealthy", f"{kind.removesuffix('Probe')} probe failed: {why}")
        if kind == "readinessProbe":
            container.ready = succeeded
        elif not succeeded:
            self._event("Normal", "Killing", f"Container {name} failed {kind}, will be restarted")
            self._stop_probes(container)
            self._end([container], self._grace_s)
        elif kind == "startupProbe":
            self._stop_probes(container)
            container.started = True
            container.ready = "readinessProbe" not in container.spec
            self._start_probes(container, list(_LATER_PROBES))
        self._report()

    # --- the end --------------------------------------------------------------------------------

    @property
    def _grace_s(self) -> float:
        return float(self.pod["spec"].get("terminationGracePeriodSeconds", 30))

    def _terminate(self) -> None:
        grace_s = self.pod["metadata"].get("deletionGracePeriodSeconds", self._grace_s)
        for container in self.containers:
            if container.is_running:
                self._event("Normal", "Killing", f"Stopping container {container.name}")
        self._end([*self.init, *self.containers], grace_s)
        for container in [*self.init, *self.containers]:
            if container.process is not None:
                self._note_end(container)
            container.is_final = True
        if not self._is_gone:
            self._report()
            self._remove_object()

    def _end(self, containers: list[Container], grace_s: float) -> None:
        """Send SIGTERM, and SIGKILL after the grace period; hooks before it are part of it."""
        deadline = time.monotonic() + grace_s
        running = [c for c in containers if c.is_running]
        for container in running:
            hook = container.spec.get("lifecycle", {}).get("preStop", {})
            if "exec" in hook:
                with contextlib.suppress(subprocess.TimeoutExpired, OSError, SpecError):
                    subprocess.run(
                        enter(container, hook["exec"]["command"]),
                        env=container.environment,
                        capture_output=True,
                        timeout=max(deadline - time.monotonic(), 1),
                        check=False,
                    )
            container.signal(signal.SIGTERM)
        while any(c.is_running for c in running):
            if time.monotonic() > deadline or self._is_gone:
                for container in running:
                    kill(container)
            self._read_inbox(_POLL_S)
            shorter = self.pod["metadata"].get("deletionGracePeriodSeconds")
            if shorter is not None:
                deadline = min(deadline, time.monotonic() + shorter)

    def _remove_object(self) -> None:
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": self.uid}}
        self._api.call("DELETE", self._path, body)

    # --- what the API server gets ---------------------------------------------------------------

    def _event(self, kind: str, reason: str, message: str) -> None:
        reference = {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": self.namespace,
            "name": self.name,
            "uid": self.uid,
        }
        body = {
            "metadata": {"generateName": f"{self.name}."},
            "involvedObject": reference,
            "type": kind,
            "reason": reason,
            "message": message[:1000],
            "source": {"component": "kubelet", "host": self.pod["spec"]["nodeName"]},
            "firstTimestamp": now(),
            "lastTimestamp": now(),
            "count": 1,
        }
        with contextlib.suppress(ApiError):  # the namespace is being removed
            self._api.create(f"/api/v1/namespaces/{self.namespace}/events", body)

    def _report(self) -> None:
        status = self._status()
        if status == self._reported:
            return
        self._reported = status
        body = {"metadata": {"uid": self.uid}, "status": status}
        self._api.patch(f"{self._path}/status", body, "strategic")

    def _status(self) -> Object:
        # The object of a pod that is ending may be patched until its kubelet removes it.
        main = [container_status(c) for c in self.containers]
        init_done = all(c.is_final for c in self.init)
        ready = init_done and all(c.ready and c.is_running for c in self.containers)
        conditions = {
            "PodReadyToStartContainers": bool(self.address),
            "Initialized": init_done,
            "ContainersReady": ready,
            "Ready": ready,
        }
        for kind, value in conditions.items():
            text = str(value)
            if self._conditions.get(kind, ("", ""))[0] != text:
                self._conditions[kind] = (text, now())
        status: Object = {
            "phase": self._phase(),
            "hostIP": "127.0.0.1",
            "startTime": self._began,
            "conditions": [
                {"type": kind, "status": value, "lastTransitionTime": since}
                for kind, (value, since) in self._conditions.items()
            ],
            "containerStatuses": main,
        }
        if self.init:
            status["initContainerStatuses"] = [container_status(c) for c in self.init]
        if self.address:
            status |= {"podIP": self.address, "podIPs": [{"ip": self.address}]}
        return status

    def _phase(self) -> str:
        if self.containers and all(c.is_final for c in self.containers):
            failed = any((c.last or {}).get("exitCode") for c in self.containers)
            return "Failed" if failed else "Succeeded"
        if any(c.is_final and (c.last or {}).get("exitCode") for c in self.init):
            return "Failed"
        return "Running" if any(c.n_restarts >= 0 for c in self.containers) else "Pending"


_LATER_PROBES = ("livenessProbe", "readinessProbe")


def container_status(container: Container) -> Object:
    """Return the status of a container; what is None is removed by the patch."""
    state: Object = {"running": None, "waiting": None, "terminated": None}
    if container.is_running:
        state["running"] = {"startedAt": container.started_at}
    elif container.is_final and container.last is not None:
        state["terminated"] = container.last
    else:
        reason, message = container.waiting
        state["waiting"] = {"reason": reason, "message": message}
    status: Object = {
        "name": container.name,
        "image": container.spec["image"],
        "imageID": "",
        "ready": container.ready and container.is_running,
        "started": container.started and container.is_running,
        "restartCount": max(container.n_restarts, 0),
        "state": state,
    }
    if container.last is not None and not container.is_final:
        status["lastState"] = {"terminated": container.last}
    return status


def _name_of(image: str) -> str:
    """Return the last part of an image's name, without tag and digest."""
    return image.partition("@")[0].rpartition("/")[2].partition(":")[0]
