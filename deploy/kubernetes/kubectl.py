"""Calls of `kubectl`: the user's own configuration, logins and rights."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from typing import Any

from ...protocol.errors import ConfigError

#: Seconds for one answer; logins of clouds may ask their own service first.
_LIMIT_S = 60


@dataclass(frozen=True)
class Kubectl:
    """`kubectl` for one context and namespace; None leaves the choice to its configuration."""

    context: str | None = None
    namespace: str | None = None

    def command(self, *arguments: str) -> list[str]:
        """Return the command line of a call.

        Raises:
            ConfigError: there is no kubectl.
        """
        program = shutil.which("kubectl")
        if program is None:
            raise ConfigError(
                "the command kubectl was not found in $PATH; install it, so that 'kubectl get "
                "pods' shows the pods of the cluster"
            )
        options = [
            f"--{name}={value}"
            for name, value in (("context", self.context), ("namespace", self.namespace))
            if value is not None
        ]
        return [program, *options, *arguments]

    def get(self, *arguments: str) -> dict[str, Any]:
        """Return what `kubectl get ...` answers.

        Raises:
            ConfigError: kubectl has failed; the text is its own.
        """
        command = self.command("get", "--output=json", *arguments)
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_LIMIT_S,
                check=False,
                env={**os.environ, "LC_ALL": "C"},
            )
        except subprocess.TimeoutExpired:
            raise ConfigError(
                f"kubectl has not answered for {_LIMIT_S} s; does 'kubectl get pods' work?"
            ) from None
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["no reason was given"]
            raise ConfigError(f"kubectl get {' '.join(arguments)}: {lines[-1]}")
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer
