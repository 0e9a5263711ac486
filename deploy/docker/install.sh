#!/bin/sh
# The steps of the Dockerfile, which run without a builder as well; a test installs with them and starts the result.
#
#   install.sh packages PREFIX [PACKAGE...]   weft of this checkout with all that it needs, and further packages of PyPI,
#                                             in an environment of its own at PREFIX; Python is $PYTHON or python3
#   install.sh user ROOT                      a user and a group weft, 1001, and the folders for the chart's volumes, below ROOT
#
# The packages are compiled to files that are not checked against their sources again, because the image is mounted
# read-only: Python could not write them later.
set -eu

# The version that setuptools-scm would find with git: the context of an image has the name of the commit and no more.
version() {
  sed -n 's/^fallback_version = "\(.*\)"$/\1/p' "$source/pyproject.toml"
  "$python" -c 'import runpy, pathlib, sys
commit = runpy.run_path(sys.argv[1] + "/protocol/host/checkout.py")["commit_of"](pathlib.Path(sys.argv[1]))
print("+g" + commit if commit else "")' "$source"
}

fail() {
  echo "install.sh: $*" >&2
  exit 2
}

packages() {
  prefix=$1
  shift
  source=$(cd "$(dirname "$0")/../.." && pwd)
  python=${PYTHON:-python3}
  [ -e "$source/pyproject.toml" ] || fail "$source is no checkout of weft"
  [ ! -e "$prefix" ] || fail "$prefix exists; remove it, or name another folder"
  if ! git -C "$source" rev-parse --verify --quiet HEAD >/dev/null 2>&1; then
    export SETUPTOOLS_SCM_PRETEND_VERSION_FOR_WEFT="${SETUPTOOLS_SCM_PRETEND_VERSION_FOR_WEFT:-$(version | tr -d '\n')}"
  fi
  # Without pip of its own: that of the base image installs into it, and is not in the way later.
  "$python" -m venv --without-pip "$prefix"
  "$python" -m pip --python "$prefix/bin/python" --disable-pip-version-check --quiet \
    install --no-cache-dir --no-compile --root-user-action=ignore "$source" "$@"
  "$prefix/bin/python" -m compileall -q --invalidation-mode unchecked-hash "$prefix/lib"
  "$prefix/bin/weft" --version
}

user() {
  root=$1
  mkdir -p "$root/etc"
  echo 'weft:x:1001:1001:weft:/home/weft:/usr/sbin/nologin' >>"$root/etc/passwd"
  echo 'weft:x:1001:' >>"$root/etc/group"
  for folder in home/weft var/lib/weft; do
    mkdir -p "$root/$folder"
    chmod 0700 "$root/$folder"
    # Only root can give a folder away; elsewhere it stays the caller's.
    [ "$(id -u)" -ne 0 ] || chown 1001:1001 "$root/$folder"
  done
}

[ $# -ge 2 ] || fail "give packages PREFIX, or user ROOT"
step=$1
shift
case $step in
  packages) packages "$@" ;;
  user) user "$@" ;;
  *) fail "unknown step $step: it is packages or user" ;;
esac
