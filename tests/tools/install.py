"""Install the programs of the table into the tools' folder, each once: `make tools`.

    make tools                       # those of the usual tests: about 12 minutes on two cores
    make tools ARGS="helm kwok"      # some, by the name of a row or of a program
    make tools ARGS=--list           # the table, and what is there

A tool is made in a folder beside its own, which is renamed when it is whole, under a lock: an
installation that was interrupted is done again, and two at once do the work once. A
command may take as long as it makes progress (running.py). Apt's packages go where apt puts them,
and no service is started. The exit code is 1 if a tool is missing at the
end; the others are installed all the same.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.tools import running
from tests.tools.find import find, folder, home_of
from tests.tools.table import TOOLS, Apt, GoFiles, GoInstall, GoModule, GoSource, Npm, Tool, row_of

_POLICY = Path("/usr/sbin/policy-rc.d")


class InstallError(Exception):
    """A tool could not be installed; the text says why and what to do."""


def main() -> int:
    """Install what the arguments name; return the exit code."""
    parser = argparse.ArgumentParser(prog="make tools", description="install tools of tests")
    parser.add_argument(
        "names", nargs="*", help="rows or programs; those of the usual tests if left out"
    )
    parser.add_argument("--list", action="store_true", help="show the table")
    given = parser.parse_args()
    if given.list:
        for row in TOOLS:
            print(f"{row.name:<26}{row.version:<10}{state_of(row):<13}{' '.join(row.provides)}")
        return 0
    try:
        rows = [*{row.name: row for row in map(row_of, given.names)}.values()] or [
            row for row in TOOLS if not row.when_named
        ]
    except KeyError as error:
        parser.error(error.args[0])
    failed = [row.name for row in rows if not installed(row)]
    if failed:
        print(f"tools: missing: {' '.join(failed)}; tests that need them are skipped", flush=True)
        return 1
    print(f"tools: {len(rows)} installed, in {folder()}", flush=True)
    return 0


def state_of(row: Tool) -> str:
    """Return "installed" or "missing"."""
    return "installed" if all(find(name) for name in row.provides) else "missing"


def installed(row: Tool) -> bool:
    """Install a row unless it is there; return whether it is there now."""
    if state_of(row) == "installed":
        return True
    with _locked():
        if state_of(row) == "installed":
            return True
        print(f"tools: {row.name} {row.version}: about {row.minutes:g} min ...", flush=True)
        began = time.monotonic()
        try:
            install(row)
        except InstallError as error:
            print(f"tools: {row.name}: {error}", flush=True)
            return False
    print(f"tools: {row.name}: done in {time.monotonic() - began:.0f} s", flush=True)
    return True


def install(row: Tool) -> None:
    """Install a row, or raise InstallError."""
    if isinstance(row.how, Apt):
        _apt(row.how)
    else:
        with _whole(home_of(row)) as there:
            if isinstance(row.how, GoInstall):
                _go_install(row.how, row.version, there)
            elif isinstance(row.how, GoModule):
                _go_module(row.how, row.version, there)
            elif isinstance(row.how, GoSource):
                _go_source(row.how, there)
            elif isinstance(row.how, GoFiles):
                _go_files(row.how, row.version, there)
            else:
                _npm(row.how, row.version, there)
    missing = [name for name in row.provides if find(name) is None]
    if missing:
        raise InstallError(f"installed without {', '.join(missing)}: the table is wrong")


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    """Hold the lock of the tools' folder: one build at a time."""
    lock = folder().with_name(f"{folder().name}.lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"tools: waiting for another installation ({lock})", flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _whole(home: Path) -> Iterator[Path]:
    """Yield a folder that gets the name `home` if the block succeeds, and goes otherwise."""
    home.parent.mkdir(parents=True, exist_ok=True)
    there = Path(tempfile.mkdtemp(prefix=f".{home.name}-", dir=home.parent))
    try:
        yield there
        there.chmod(0o755)
        if home.exists():
            shutil.rmtree(home)
        there.rename(home)
    finally:
        shutil.rmtree(there, ignore_errors=True)


def _run(*command: str | Path, cwd: Path | None = None, **environment: str) -> str:
    """Run a command to its end; return what it printed, or raise InstallError with its last."""
    words = [*map(str, command)]
    try:
        done = running.run(words, cwd=cwd, environment=environment)
    except FileNotFoundError:
        raise InstallError(f"needs the command {words[0]}, which is not in PATH") from None
    except running.GivenUpError as error:
        raise InstallError(f"{' '.join(words)[:200]}: {error}") from None
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-6:]
        text = "\n    ".join([" ".join(words)[:200], *last])
        raise InstallError(f"exit code {done.returncode}:\n    {text}")
    return done.stdout


def _go(*arguments: str | Path, cwd: Path, **environment: str) -> str:
    # A tool must be as on every other machine: no settings of the user.
    fixed = {"GOFLAGS": "-mod=mod -buildvcs=false", "GOTOOLCHAIN": "local", "GOWORK": "off"}
    return _run("go", *arguments, cwd=cwd, **fixed, **environment)


def _downloaded(module: str, version: str, cwd: Path) -> Path:
    """Return the folder of a module in Go's cache, which is read-only."""
    answer = json.loads(_go("mod", "download", "-json", f"{module}@{version}", cwd=cwd))
    return Path(answer["Dir"])


def _go_install(how: GoInstall, version: str, there: Path) -> None:
    flags = f"-ldflags={how.ldflags or '-s -w'}"
    _go("install", flags, f"{how.package}@{version}", cwd=there, GOBIN=str(there))


def _go_module(how: GoModule, version: str, there: Path) -> None:
    source = there / "source"
    source.mkdir()
    go_mod = (_downloaded(how.module, version, there) / "go.mod").read_text(encoding="utf-8")
    language = next(line for line in go_mod.splitlines() if line.startswith("go "))
    parts = [
        line.split()[0]
        for line in go_mod.splitlines()
        if line.startswith("\t") and " => ./staging/" in line
    ]
    release = "v0." + version.split(".", 1)[1]
    settings = [line for line in go_mod.splitlines() if line.startswith("godebug ")]
    lines = [
        "module tools",
        "",
        language,
        *settings,
        f"require {how.module} {version}",
        "replace (",
    ]
    lines += [f"\t{part} => {part} {release}" for part in parts]
    (source / "go.mod").write_text("\n".join([*lines, ")", ""]), encoding="utf-8")
    packages = [f"{how.module}/{package}".rstrip("/") for package in how.packages]
    # `go mod tidy` keeps what a source imports, and a program can only be imported by nothing.
    imports = "".join(f'import _ "{package}"\n' for package in packages)
    (source / "tools.go").write_text(
        f"//go:build tools\n\npackage tools\n\n{imports}", encoding="utf-8"
    )
    _go("mod", "tidy", cwd=source)
    target = f"{there}/{how.program}"
    _go("build", f"-ldflags={how.ldflags}", "-o", target, *packages, cwd=source)
    shutil.rmtree(source)


def _go_source(how: GoSource, there: Path) -> None:
    source = there / "source"
    shutil.copytree(Path(__file__).parent / how.folder, source)
    _go("mod", "tidy", cwd=source)
    packages = [f"./{package}" for package in how.packages]
    _go("build", "-ldflags=-s -w", "-o", f"{there}/", *packages, cwd=source)
    shutil.rmtree(source)


def _go_files(how: GoFiles, version: str, there: Path) -> None:
    module = _downloaded(how.module, version, there)
    for name, target in how.files.items():
        source, copy = module / name, there / target
        copy.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            copy.mkdir()
            for path in source.iterdir():
                if path.is_file():
                    shutil.copyfile(path, copy / path.name)
        else:
            shutil.copyfile(source, copy)


def _npm(how: Npm, version: str, there: Path) -> None:
    quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", "--no-save"]
    _run("npm", "install", *quiet, "--prefix", there, f"{how.package}@{version}", cwd=there)


def _apt(how: Apt) -> None:
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        raise InstallError(f"needs root: sudo apt-get install {' '.join(how.packages)}")
    install = ["apt-get", "install", "-y", "--no-install-recommends", *how.packages]
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    with _no_services():
        try:
            _run(*install, **quiet)
        except InstallError:  # a new machine has no lists of packages, or old ones
            _run("apt-get", "update", **quiet)
            _run(*install, **quiet)


@contextlib.contextmanager
def _no_services() -> Iterator[None]:
    """Forbid packages to start their services, unless the machine has a rule of its own."""
    if _POLICY.exists():
        yield
        return
    _POLICY.write_text("#!/bin/sh\nexit 101\n", encoding="utf-8")
    _POLICY.chmod(0o755)
    try:
        yield
    finally:
        _POLICY.unlink()


if __name__ == "__main__":
    sys.exit(main())
