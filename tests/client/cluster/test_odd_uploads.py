"""Odd uploads are refused with the remedy, or taken, and workers go on as before."""

from __future__ import annotations

import io
import os
import stat
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import weft
from weft.protocol.plugins import packing_files

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> Iterator[weft.LocalCluster]:
    with weft.LocalCluster(n_workers=1, threads_per_worker=1) as cluster:
        cluster.wait_for_workers(1)
        yield cluster


@pytest.fixture
def client(cluster) -> Iterator[weft.Client]:
    """Return a client; afterwards the worker has no plugin, nothing on its path, and runs tasks."""
    with weft.Client(cluster) as client:
        before = client.submit(state_of_worker, pure=False).result()
        yield client
        for name in before[0]:
            client.unregister_plugin(name)
        assert client.submit(state_of_worker, pure=False).result(timeout=60) == before


def state_of_worker() -> tuple[list[str], list[str], list[str | None], list[str]]:
    import json
    import sys

    worker = weft.get_worker()
    folder = Path(worker.local_directory)
    uploads = [str(path) for path in [*folder.rglob("*"), *folder.parent.glob("outside*")]]
    entries = [entry for entry in sys.path if "weft-upload-" in entry]
    return [*worker.plugins], uploads, [json.__file__, weft.__file__], entries


def archive(path: Path, *members: tuple[str, bytes, int]) -> Path:
    """Make an archive of members: name, content, mode."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content, mode in members:
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = mode << 16
            file.writestr(info, content)
    return path


@pytest.mark.parametrize(
    "name", ["../outside.py", "pkg/../../outside.py", "/outside.py", "C:/x.py"]
)
def test_an_archive_with_members_outside_is_refused(client, tmp_path, name):
    path = archive(tmp_path / "odd.zip", ("pkg/__init__.py", b"", 0o644), (name, b"", 0o644))
    with pytest.raises(ValueError, match="leads to a place outside of the archive; make it anew"):
        client.upload_file(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["odd.zip"]


def test_an_archive_with_a_link_is_refused(client, tmp_path):
    link = ("pkg/link.py", b"/etc/passwd", stat.S_IFLNK | 0o777)
    path = archive(tmp_path / "odd.whl", ("pkg/__init__.py", b"", 0o644), link)
    with pytest.raises(
        ValueError, match=r"'pkg/link\.py' that is a link or a device; make it anew"
    ):
        client.upload_file(path)


def test_an_archive_that_would_fill_the_memory_is_refused(client, tmp_path, monkeypatch):
    monkeypatch.setattr(packing_files, "MAX_UNPACKED", 10 << 20)
    path = archive(tmp_path / "bomb.zip", ("pkg/__init__.py", bytes(11 << 20), 0o644))
    assert path.stat().st_size < 20_000
    with pytest.raises(ValueError, match="has more than 10 MiB unpacked, the limit on a worker"):
        client.upload_file(path)


def test_an_archive_that_claims_to_be_small_is_refused(client, tmp_path):
    path = archive(tmp_path / "bomb.zip", ("pkg/__init__.py", bytes(11 << 20), 0o644))
    data = path.read_bytes().replace(struct.pack("<I", 11 << 20), struct.pack("<I", 100))
    path.write_bytes(data)
    assert zipfile.ZipFile(io.BytesIO(data)).infolist()[0].file_size == 100
    with pytest.raises(ValueError, match=r"cannot be read as an archive: .*; make it anew"):
        client.upload_file(path)


def test_a_directory_that_would_fill_the_disk_is_refused(client, tmp_path):
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "__init__.py").touch()
    with (package / "large").open("wb") as file:
        file.truncate((1 << 30) + 1)
    with pytest.raises(ValueError, match="has more than 1 GiB unpacked, the limit on a worker"):
        client.upload_file(package)


@pytest.mark.parametrize("name", ["json.py", "json/__init__.py", "weft.py", "weft/__init__.py"])
@pytest.mark.parametrize("kind", ["file", "archive", "directory"])
def test_modules_that_workers_need_are_not_hidden(client, tmp_path, name, kind):
    module = name.partition("/")[0].removesuffix(".py")
    path = tmp_path / "modules" / name
    path.parent.mkdir(parents=True)
    path.write_text("raise SystemError('it is hidden')")
    upload = path if path.name == f"{module}.py" else path.parent
    if kind == "directory":
        upload = tmp_path / "modules"
    elif kind == "archive":
        content = path.read_bytes()
        upload = archive(tmp_path / "odd.zip", (name, content, 0o644))
    with pytest.raises(ValueError, match=f"would hide the module '{module}', which workers need"):
        client.upload_file(upload)


def test_an_archive_of_data_and_tests_is_taken(client, tmp_path):
    members = ["json/data.csv", "test/__init__.py", "weft_odd/__init__.py", "random.npy", "ab:c"]
    path = archive(tmp_path / "fine.zip", *((name, b"x = 1", 0o644) for name in members))
    client.upload_file(path)
    assert client.submit(lambda: __import__("weft_odd").x).result() == 1
    client.unregister_plugin("upload-fine.zip")


def test_a_large_file_is_refused_before_it_is_sent(client, tmp_path):
    path = tmp_path / "large.bin"
    with path.open("wb") as file:
        file.truncate(100 << 20)
    with pytest.raises(ValueError, match=r"more than 64 MiB to be sent.* client.scatter"):
        client.upload_file(path)


def test_a_directory_with_odd_names_and_links_out_is_taken(client, tmp_path):
    package = tmp_path / "weft_odd_names"
    package.mkdir()
    (tmp_path / "outside.txt").write_text("outside")
    (package / "__init__.py").write_text("x = 2")
    (package / "..strange").write_text("")
    (package / "link.txt").symlink_to(tmp_path / "outside.txt")
    client.upload_file(package)

    def look() -> tuple[int, str]:
        import weft_odd_names  # type: ignore[import-not-found]

        folder = os.path.dirname(weft_odd_names.__file__)
        return weft_odd_names.x, open(os.path.join(folder, "link.txt")).read()

    assert client.submit(look).result() == (2, "outside")
    client.unregister_plugin("upload-weft_odd_names")
