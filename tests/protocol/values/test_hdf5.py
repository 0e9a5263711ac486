"""Objects of h5py are sent by the path of their file."""

from __future__ import annotations

import pytest

from weft.protocol.errors import SerializationError
from weft.protocol.values.serialize import dumps_arguments, loads_arguments

h5py = pytest.importorskip("h5py", reason="h5py is missing: pip install h5py")


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "data.h5"
    with h5py.File(path, "w") as file:
        file["group/x"] = [1, 2, 3]
    return path


def test_objects_open_for_reading_are_opened_again(path):
    with h5py.File(path, "r") as file:
        blob, _ = dumps_arguments("load", (file, file["group"], [file["group/x"]]), {})
    (again, group, [x]), _ = loads_arguments(blob, [])
    with again, group.file, x.file:
        assert (again["group/x"][1], list(group), x[...].tolist()) == (2, ["x"], [1, 2, 3])


def test_a_file_of_a_relative_path_is_found_from_another_folder(path, monkeypatch, tmp_path):
    monkeypatch.chdir(path.parent)
    with h5py.File(path.name, "r") as file:
        blob, _ = dumps_arguments("load", (file,), {})
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    (again,), _ = loads_arguments(blob, [])
    with again:
        assert again.mode == "r"


def test_objects_open_for_writing_or_closed_are_refused(path):
    words = r"argument args\[0\] of load .*is open for writing \(mode 'r\+'\).*such as zarr"
    with h5py.File(path, "r+") as file, pytest.raises(SerializationError, match=words):
        dumps_arguments("load", (file["group/x"],), {})
    with pytest.raises(SerializationError, match="h5py objects cannot be pickled"):
        dumps_arguments("load", (file,), {})
