"""The commit of a checkout is read as git keeps it, in each of the ways in which it does."""

from __future__ import annotations

import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

import weft
from weft.protocol.host.checkout import commit_of, running_commit
from weft.protocol.host.versions import process_versions, weft_version

ROOT = Path(__file__).resolve().parents[3]
COMMIT = "0123456789abcdef0123456789abcdef01234567"

needs_git = pytest.mark.skipif(
    shutil.which("git") is None, reason="git is missing: apt install git"
)


def git(folder: Path, *arguments: str) -> str:
    settings = ("-c", "user.name=n", "-c", "user.email=n@n", "-c", "init.defaultBranch=main")
    command = ["git", "-C", str(folder), *settings, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path):
    git(tmp_path, "init", "-q", "repository")
    path = tmp_path / "repository"
    for _ in range(2):
        git(path, "commit", "-q", "--allow-empty", "-m", "m")
    return path


@needs_git
def test_the_commit_is_that_of_git_on_a_branch_off_all_branches_and_in_a_worktree(repository):
    head, before = git(repository, "rev-parse", "HEAD", "HEAD~").split()
    assert commit_of(repository) == head[:9]
    git(repository, "worktree", "add", "-q", "-b", "other/branch", "../tree", before)
    tree = repository.parent / "tree"
    assert commit_of(tree) == before[:9]
    git(repository, "pack-refs", "--all")
    assert not (repository / ".git" / "refs" / "heads" / "main").exists()
    assert (commit_of(repository), commit_of(tree)) == (head[:9], before[:9])
    git(repository, "checkout", "-q", before)
    assert commit_of(repository) == before[:9]
    git(tree, "commit", "-q", "--allow-empty", "-m", "m")
    assert commit_of(tree) == git(tree, "rev-parse", "HEAD")[:9] != before[:9]


@needs_git
def test_a_repository_without_a_commit_has_none(tmp_path):
    git(tmp_path, "init", "-q")
    assert commit_of(tmp_path) == ""


@pytest.mark.parametrize(
    "files",
    [
        {},
        {".git": "gitdir: /no/such/folder"},
        {".git": "\x00"},
        {".git/HEAD": ""},
        {".git/HEAD": "no commit"},
        {".git/HEAD": "ref: refs/heads/main", ".git/packed-refs": f"{COMMIT} refs/heads/mains"},
        {".git/HEAD": "ref: refs/heads/main", ".git/refs/heads/main": COMMIT[:8]},
    ],
)
def test_a_folder_that_git_has_not_filled_has_no_commit(files, tmp_path):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert commit_of(tmp_path) == ""


@needs_git
def test_every_place_that_states_the_version_names_the_commit_of_this_checkout():
    if not (ROOT / ".git").exists():
        pytest.skip("the tests do not run in a git checkout: run them in a clone")
    # A commit made while the tests run changes nothing: this process runs what it has imported.
    commit = running_commit()
    git(ROOT, "cat-file", "-e", f"{commit}^{{commit}}")
    release = version("weft").partition("+")[0]
    assert weft.__version__ == weft_version("") == f"{release}+g{commit}"
    assert process_versions()["packages"]["weft"] == weft.__version__
