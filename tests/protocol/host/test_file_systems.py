"""Folders whose files take memory."""

from __future__ import annotations

import os

import pytest

from weft.protocol.host.file_systems import file_system_of, is_in_memory

MOUNTS = """\
/dev/vda / ext4 rw 0 0
tmpfs /tmp tmpfs rw 0 0
/dev/vdb /tmp/disk xfs rw 0 0
tmpfs /a\\040folder tmpfs rw 0 0
/dev/vdc /over ext4 rw 0 0
tmpfs /over tmpfs rw 0 0
nonsense
""".splitlines(keepends=True)


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/", "ext4"),
        ("/var/tmp", "ext4"),
        ("/tmp", "tmpfs"),
        ("/tmp/weft-1", "tmpfs"),
        ("/tmpfoo", "ext4"),
        ("/tmp/disk/x", "xfs"),
        ("/a folder/x", "tmpfs"),
        ("/over/x", "tmpfs"),
    ],
)
def test_the_file_system_is_that_of_the_nearest_mount(folder, kind):
    assert file_system_of(folder, MOUNTS) == kind


def test_an_empty_table_says_nothing():
    assert file_system_of("/tmp", []) == ""


def test_shared_memory_of_this_machine_is_in_memory_and_a_missing_folder_raises_nothing():
    if not os.path.ismount("/dev/shm"):
        pytest.skip("this system has no /dev/shm")
    assert is_in_memory("/dev/shm")
    assert is_in_memory("/dev/shm/missing/too")
    assert not is_in_memory("/proc")
