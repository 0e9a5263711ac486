"""The slow tests that `make test` leaves out, and why; `make test-all` and `.ci/run` run them.

A path is a folder or a file below tests/. Its tests that are not marked `slow` stay in `make test`.
A single test may be marked `thorough(reason)` where it stands. tests/README.md has the same table.
"""

from __future__ import annotations

from typing import Final

THOROUGH: Final = {
    "benchmarks": "benchmarks, run as programs: nobody's program depends on them",
    "client/cluster/test_supervisor_plugins.py": "families of workers started for each plugin",
    "deploy/batch": "a real Slurm and a real Grid Engine; what they print is in test_systems.py",
    "deploy/cli/test_doctor.py": "each planted fault is a cluster; the checks are in deploy/doctor",
    "deploy/cli/test_doctor_faults.py": "as test_doctor.py",
    "deploy/cli/test_following.py": "commands that look on: their words are in deploy/top",
    "deploy/cli/test_identity_files.py": "clusters started again and again, as Kubernetes does",
    "deploy/cli/test_looking.py": "commands that look on: what they ask is in scheduler/core",
    "deploy/cli/test_placing.py": "each option is a cluster that lives for seconds",
    "deploy/cli/test_running.py": "whole clusters, for commands made of parts that have tests",
    "deploy/cli/test_ssh.py": "a real sshd, and machines that are made of processes",
    "deploy/cli/test_top.py": "pseudo-terminals, drawn for seconds; the screens are in deploy/top",
    "deploy/cli/test_words.py": "every command, as a process, for its help and its completion",
    "deploy/http/test_details_in_chromium.py": "as test_in_chromium.py",
    "deploy/http/test_history_in_chromium.py": "as test_in_chromium.py",
    "deploy/http/test_in_chromium.py": "a browser; the pages are in the other tests of deploy/http",
    "deploy/http/test_profile_in_chromium.py": "as test_in_chromium.py",
    "deploy/local/test_first_look.py": "first programs of users, each with its own cluster",
    "deploy/local/test_kept.py": "clusters for each test; what runs there is in client/blocks",
    "deploy/monitoring": "Prometheus and Grafana's types, on a busy cluster",
    "deploy/test_adaptive.py": "hours of simulated clusters",
    "deploy/test_compose.py": "what containers run",
    "deploy/test_docker.py": "the steps of the image: installs packages",
    "deploy/test_ssh_cluster.py": "a real sshd; the rest is in deploy/jobs",
    "deploy/test_slurm.py": "a real Slurm with two nodes",
    "deploy/workers/test_worker_lives.py": "signals to daemons; for the rest see worker/",
    "docs": "each page is a program with clusters of its own",
    "frameworks": "programs of other projects",
    "helm": "the chart, rendered a hundred times",
    "integration/test_broken_workers.py": "interpreters that are broken for good",
    "integration/test_dask_in_tasks.py": "dask's collections, in processes of their own",
    "integration/test_dropped_clients.py": "programs that forget their clients, as processes",
    "integration/test_full_memory.py": "workers that are filled with data",
    "integration/test_growth.py": "peers of other versions",
    "integration/test_inspection.py": "workers that hang or die while they are asked",
    "integration/test_large_pickles.py": "values of hundreds of megabytes",
    "integration/test_prometheus.py": "a Prometheus that scrapes, each for ten seconds or more",
    "integration/test_scattering.py": "clusters for each way that data is scattered and lost",
    "integration/test_shared_arguments.py": "large arguments; the small ones are in client/",
    "kube": "a control plane of Kubernetes, and its pods",
    "notebooks": "kernels of notebooks",
    "trouble": "a round of kills; the simulator has each of them",
}


def why_thorough(path: str) -> str | None:
    """Return why the slow tests of a file below tests/ are left out, if they are."""
    for name, why in THOROUGH.items():
        if path == name or path.startswith(f"{name}/"):
            return why
    return None
