"""The state directory: what it keeps, and what it refuses."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys

import pytest

from weft.deploy.scheduler.state_directory import (
    DirectoryInUse,
    Identity,
    StateDirectory,
    state_home,
)
from weft.protocol.errors import ConfigError
from weft.protocol.trust.security import (
    Security,
    generate_certificate,
    new_cluster_id,
    new_token,
)
from weft.scheduler.config import SchedulerConfig
from weft.scheduler.core.records.presence import Members
from weft.scheduler.server import SchedulerServer

CLUSTER = new_cluster_id()
CERTIFICATE, KEY = generate_certificate(CLUSTER)
SECURITY = Security(new_token().encode(), CLUSTER, CERTIFICATE, KEY)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "one"


def filled(path):
    directory = StateDirectory(path)
    directory.keep_identity(Identity.of(SECURITY, 8786, keeps_token=True))
    directory.keep_epoch(77)
    directory._write_members(Members(("w1", "w2"), ("c1",)))
    directory.close()


def files(path):
    return {file.name: file.read_bytes() for file in path.iterdir()}


def test_the_next_scheduler_finds_what_the_last_one_kept(path):
    directory = StateDirectory(path)
    assert (directory.identity, directory.last_epoch, directory.members) == (None, 0, Members())
    directory.close()
    filled(path)
    directory = StateDirectory(path)
    assert directory.identity == Identity.of(SECURITY, 8786, keeps_token=True)
    assert directory.identity.private_key_pem == KEY
    assert directory.last_epoch == 77
    assert directory.members == Members(("w1", "w2"), ("c1",))
    directory.close()


def test_only_this_user_can_use_it_and_no_repr_shows_its_secrets(path):
    filled(path)
    assert path.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in path.iterdir()} == {0o600}
    assert sorted(files(path)) == ["epoch.json", "identity.json", "lock", "members.json"]
    identity = Identity.of(SECURITY, 8786, keeps_token=True)
    for secret in (identity.token, identity.view_token, KEY):
        assert secret not in repr(identity)
    other = Identity.of(SECURITY, 8786, keeps_token=False)
    assert other.token == ""


def test_one_scheduler_at_a_time_uses_it(path):
    first = StateDirectory(path)
    with pytest.raises(DirectoryInUse, match=rf"another running scheduler, process {os.getpid()} "):
        StateDirectory(path)
    first.close()
    StateDirectory(path).close()


def test_the_lock_ends_with_its_process(path):
    code = f"""
import os, sys
from pathlib import Path
from weft.deploy.scheduler.state_directory import StateDirectory
held = StateDirectory(Path({str(path)!r}))
print("held", flush=True)
sys.stdin.read()
"""
    holder = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(DirectoryInUse, match=f"process {holder.pid} "):
            StateDirectory(path)
        holder.kill()
    StateDirectory(path).close()


DAMAGES = {
    "not JSON": ("identity.json", lambda c: None, "identity.json is damaged"),
    "no object": ("epoch.json", lambda c: [1], "epoch.json is damaged"),
    "no token": ("identity.json", lambda c: {**c, "token": 5}, "the cluster is a new one then"),
    "a short token": ("identity.json", lambda c: {**c, "token": "x"}, "is damaged"),
    "no cluster": ("identity.json", lambda c: {**c, "cluster_id": "zz"}, "is damaged"),
    "no certificate": ("identity.json", lambda c: {**c, "certificate_pem": "?"}, "is damaged"),
    "no port": ("identity.json", lambda c: {**c, "port": 1 << 17}, "is damaged"),
    "no epoch": ("epoch.json", lambda c: {**c, "epoch": -1}, "is then taken from the clock"),
    "no ids": ("members.json", lambda c: {**c, "worker_ids": [1]}, "members.json is damaged"),
    "a newer weft": ("epoch.json", lambda c: {**c, "version": 9}, "was written by a newer weft"),
    "another cluster": (
        "members.json",
        lambda c: {**c, "cluster_id": "0" * 32},
        "members.json is of another cluster than identity.json beside it",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_an_error_with_its_path_and_nothing_is_overwritten(path, damage):
    filled(path)
    name, change, words = DAMAGES[damage]
    changed = change(json.loads((path / name).read_text()))
    (path / name).write_text("{" if changed is None else json.dumps(changed))
    before = {name: data for name, data in files(path).items() if name != "lock"}
    with pytest.raises(ConfigError) as caught:
        StateDirectory(path)
    assert words in str(caught.value)
    assert str(path / name) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert SECURITY.token.decode() not in str(caught.value)
    assert {name: data for name, data in files(path).items() if name != "lock"} == before
    # The lock was released.
    with pytest.raises(ConfigError) as again:
        StateDirectory(path)
    assert str(again.value) == str(caught.value)


def test_a_directory_that_others_can_use_is_refused(path):
    filled(path)
    path.chmod(0o755)
    with pytest.raises(ConfigError, match=f"can be used by others .* run 'chmod 700 {path}'"):
        StateDirectory(path)


def test_a_file_in_its_place_and_a_link_are_refused(path, tmp_path):
    filled(path)
    (tmp_path / "link").symlink_to(path)
    (tmp_path / "file").write_text("")
    for wrong in ("link", "file"):
        with pytest.raises(ConfigError, match="is not a directory; give another one"):
            StateDirectory(tmp_path / wrong)


def test_a_place_without_permission_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="cannot make the directory /proc/nowhere"):
        StateDirectory(type(tmp_path)("/proc/nowhere/one"))


def test_a_new_directory_of_a_failed_start_is_removed_and_an_old_one_is_not(path):
    fresh = StateDirectory(path)
    fresh.keep_identity(Identity.of(SECURITY, 0, keeps_token=True))
    fresh.discard()
    assert not path.exists()
    filled(path)
    before = files(path)
    StateDirectory(path).discard()
    assert {*files(path)} == {*before}


def test_default_place_is_the_state_directory_of_the_user(tmp_path):
    assert state_home({"XDG_STATE_HOME": str(tmp_path)}) == tmp_path / "weft"
    home = {"HOME": str(tmp_path)}
    assert state_home(home) == tmp_path / ".local" / "state" / "weft"
    assert state_home({**home, "XDG_STATE_HOME": "relative"}) == state_home(home)


async def test_members_are_written_in_the_background_the_latest_last(path):
    filled(path)
    directory = StateDirectory(path)
    for n in range(5):
        directory.keep_members(Members((f"w{n}",), ()))
    while directory._writing is not None:  # noqa: ASYNC110 - it is done when nothing is written
        await asyncio.sleep(0)
    directory.close()
    again = StateDirectory(path)
    assert again.members == Members(("w4",), ())
    again.close()


async def test_the_last_members_are_written_although_the_loop_ends(path):
    filled(path)
    directory = StateDirectory(path)
    directory.keep_members(Members(("w1",), ()))
    directory.keep_members(Members())
    directory.close()  # no iteration of the loop in between
    await asyncio.sleep(0)
    assert directory._thread is None
    again = StateDirectory(path)
    assert again.members == Members()
    again.close()


async def test_members_that_cannot_be_written_are_one_warning(path, caplog):
    filled(path)
    directory = StateDirectory(path)
    path.chmod(0o777)
    directory.keep_members(Members(("w",), ()))
    while directory._writing is not None:  # noqa: ASYNC110
        await asyncio.sleep(0)
    (record,) = caplog.records
    assert "others may replace files" in record.getMessage()
    directory.close()


@pytest.mark.parametrize("last_epoch", [0, 1 << 61])
async def test_a_scheduler_is_above_the_last_epoch_and_stores_its_own_before_it_listens(
    tmp_path, last_epoch
):
    class Keeper:
        def keep_epoch(self, epoch):
            assert server.addresses == []
            epochs.append(epoch)

        def keep_members(self, members):
            epochs.append(members)

    epochs = []
    expected = Members(("w",), ())
    server = SchedulerServer(
        SchedulerConfig(
            [f"unix://{tmp_path}/s"],
            SECURITY,
            last_epoch=last_epoch,
            expected=expected,
            keeper=Keeper(),
        )
    )
    await server.start()
    await server.stop()
    assert epochs[0] == server.state.epoch > last_epoch
    assert server.state.kept_members.expected == expected
