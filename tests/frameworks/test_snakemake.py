"""Snakemake with the executor weft, and what its users notice when a job goes wrong."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from tests.frameworks.hosts import ended, required, run, started

pytestmark = pytest.mark.slow

NAME = "snakemake_executor_plugin_weft"
PLUGIN = Path(__file__).resolve().parents[2] / "deploy" / "snakemake" / NAME

WORKFLOW = """
rule all:
    input: "total.txt"

rule square:
    output: "square_{n}.txt"
    threads: 2
    resources: mem_mb=100, runtime=5
    shell: "echo $(( {wildcards.n} * {wildcards.n} )) {threads} > {output}"

rule total:
    input: expand("square_{n}.txt", n=range(3))
    output: "total.txt"
    run:
        with open(output[0], "w") as f:
            print(sum(int(open(i).read().split()[0]) for i in input), file=f)
"""

ONE = 'rule one:\n    output: "one.txt"\n    resources: mem_mb=100\n    '


@pytest.fixture(autouse=True)
def snakemake():
    return required("snakemake", "snakemake")


def workflow(folder, text):
    """Write a workflow; return the command that runs it, with the plug-in of this checkout."""
    (folder / "Snakefile").write_text(text, encoding="utf-8")
    options = ["--executor", "weft", "--jobs", "2", "--latency-wait", "20", "--nocolor"]
    shutil.copytree(PLUGIN, folder / "lib" / NAME)  # so that it need not be installed
    return [sys.executable, "-m", "snakemake", *options]


def paths(folder):
    return {"PYTHONPATH": str(folder / "lib")}


def test_a_workflow_of_dependent_rules_runs_with_their_resources(tmp_path):
    code, printed = run(workflow(tmp_path, WORKFLOW), tmp_path, **paths(tmp_path))
    assert code == 0, printed
    assert "5 of 5 steps (100%) done" in printed
    assert (tmp_path / "total.txt").read_text() == "5\n"
    assert (tmp_path / "square_2.txt").read_text() == "4 2\n"


def test_a_job_that_fails_shows_the_traceback_of_its_rule_and_ends_the_workflow(tmp_path):
    command = workflow(tmp_path, ONE + "run:\n        1 / 0\n")
    code, printed = run(command, tmp_path, **paths(tmp_path))
    assert code != 0
    assert "CommandFailed" in printed
    assert "ZeroDivisionError" in printed
    assert "Error in rule one" in printed


def test_a_job_whose_worker_is_killed_runs_again(tmp_path):
    # Above the Snakemake of the job are a shell and the worker.
    kill = """run:
        import os, psutil, signal
        if not os.path.exists("once"):
            open("once", "w").close()
            chain = psutil.Process().parents()
            worker = next(p for p in chain if " ".join(p.cmdline()).startswith("weft worker"))
            worker.send_signal(signal.SIGKILL)
        open(output[0], "w").write("survived")
"""
    code, printed = run(workflow(tmp_path, ONE + kill), tmp_path, **paths(tmp_path))
    assert code == 0, printed
    assert (tmp_path / "one.txt").read_text() == "survived"


def test_ctrl_c_ends_the_workflow_and_what_its_jobs_have_started(tmp_path):
    command = workflow(tmp_path, ONE + 'shell: "echo $$ > pid; touch begun; sleep 600"\n')
    process = started(command, tmp_path, **paths(tmp_path))
    while not (tmp_path / "begun").exists():
        assert process.poll() is None, ended(process)
    process.send_signal(signal.SIGINT)
    code, printed = ended(process)
    assert code != 0, printed
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
