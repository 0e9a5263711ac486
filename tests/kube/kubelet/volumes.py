"""Volumes of a pod, as folders that look as Kubernetes mounts them.

Secrets, ConfigMaps and projections are links to files of root in a folder with a date, which others
can read (0644, unless the volume states another mode); they are not updated while the pod runs.
"""

from __future__ import annotations

import os
import time
from base64 import b64decode
from pathlib import Path
from typing import Any

from tests.kube.api import Api, ApiError, Object


class VolumeError(Exception):
    """A volume cannot be mounted yet; the text is for the event."""


def make_volume(api: Api, pod: Object, volume: Object, folder: Path) -> Path:
    """Make a volume below `folder`; return the path that its mounts show."""
    path = folder / volume["name"]
    group = pod["spec"].get("securityContext", {}).get("fsGroup")
    if "emptyDir" in volume:
        path.mkdir(exist_ok=True)
        # As kubelets make it: all may write, and of a group the files stay the group's.
        path.chmod(0o777 if group is None else 0o2777)
        if group is not None:
            os.chown(path, 0, group)
        return path
    if "hostPath" in volume:
        return Path(volume["hostPath"]["path"])
    if "projected" in volume:
        mode = volume["projected"].get("defaultMode", 0o644)
        files: dict[str, tuple[bytes, int]] = {}
        for source in volume["projected"]["sources"]:
            files |= _projected(api, pod, source, mode)
    elif "secret" in volume:
        files = _keys(api, pod, "secrets", volume["secret"], volume["secret"]["secretName"])
    elif "configMap" in volume:
        files = _keys(api, pod, "configmaps", volume["configMap"], volume["configMap"]["name"])
    elif "downwardAPI" in volume:
        files = _projected(api, pod, {"downwardAPI": volume["downwardAPI"]}, 0o644)
    else:
        kinds = sorted({*volume} - {"name"})
        raise VolumeError(f"volume {volume['name']}: this kubelet has no {', '.join(kinds)}")
    write_links(path, files, group)
    return path


def write_links(path: Path, files: dict[str, tuple[bytes, int]], group: int | None = None) -> None:
    """Write files as kubelets do: NAME -> ..data/NAME, and ..data -> a folder with a date."""
    if path.exists():
        return
    path.mkdir(mode=0o755)
    dated = path / time.strftime("..%Y_%m_%d_%H_%M_%S.1")
    dated.mkdir(mode=0o755)
    if group is not None:
        for folder in (path, dated):
            os.chown(folder, 0, group)
            folder.chmod(0o2755)
    for name, (data, mode) in files.items():
        file = dated / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        if group is not None:
            os.chown(file, 0, group)
        # A group gets the right to read: these volumes are read-only.
        file.chmod(mode if group is None else mode | 0o440)
    (path / "..data").symlink_to(dated.name)
    for top in {name.split("/")[0] for name in files}:
        (path / top).symlink_to(f"..data/{top}")


def _keys(
    api: Api, pod: Object, kind: str, source: Object, name: str, mode: int = 0o644
) -> dict[str, tuple[bytes, int]]:
    namespace = pod["metadata"]["namespace"]
    try:
        found = api.get(f"/api/v1/namespaces/{namespace}/{kind}/{name}")
    except ApiError as error:
        if error.code != 404:
            raise
        if source.get("optional"):
            return {}
        raise VolumeError(f'{kind[:-1]} "{name}" not found') from None
    data = {key: text.encode() for key, text in (found.get("data") or {}).items()}
    if kind == "secrets":
        data = {key: b64decode(text) for key, text in data.items()}
    mode = source.get("defaultMode", mode)
    if not source.get("items"):
        return {key: (value, mode) for key, value in data.items()}
    missing = [item["key"] for item in source["items"] if item["key"] not in data]
    if missing and not source.get("optional"):
        raise VolumeError(f"references non-existent {kind[:-1]} key: {missing[0]}")
    return {
        item["path"]: (data[item["key"]], item.get("mode", mode))
        for item in source["items"]
        if item["key"] in data
    }


def _projected(api: Api, pod: Object, source: Object, mode: int) -> dict[str, tuple[bytes, int]]:
    if "secret" in source:
        return _keys(api, pod, "secrets", source["secret"], source["secret"]["name"], mode)
    if "configMap" in source:
        return _keys(api, pod, "configmaps", source["configMap"], source["configMap"]["name"], mode)
    if "downwardAPI" in source:
        return {
            item["path"]: (field_of(pod, item["fieldRef"]["fieldPath"]).encode(), mode)
            for item in source["downwardAPI"]["items"]
        }
    wanted = source["serviceAccountToken"]
    namespace, account = pod["metadata"]["namespace"], pod["spec"]["serviceAccountName"]
    answer = api.create(
        f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token",
        {"spec": {"expirationSeconds": wanted.get("expirationSeconds", 3600)}},
    )
    return {wanted["path"]: (answer["status"]["token"].encode(), mode)}


def field_of(pod: Object, path: str, status: Object | None = None) -> str:
    """Return a field of the downward API as text."""
    head, _, key = path.partition("[")
    value: Any = {**pod, "status": {**pod.get("status", {}), **(status or {})}}
    for part in head.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if key:
        value = (value or {}).get(key.rstrip("]").strip("'\""), "")
    if isinstance(value, dict):
        return "\n".join(f'{name}="{text}"' for name, text in sorted(value.items()))
    return "" if value is None else str(value)
