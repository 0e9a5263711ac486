"""What batch systems print, as recorded or documented, and what is made of it."""

from __future__ import annotations

import re
import subprocess

import pytest

from weft.deploy.batch.cluster import SlurmCluster
from weft.deploy.batch.grid_engine import GRID_ENGINE
from weft.deploy.batch.lsf import LSF
from weft.deploy.batch.pbs import PBS
from weft.deploy.batch.script import make_script
from weft.deploy.batch.slurm import SLURM
from weft.deploy.batch.system import BatchSystem, JobRequest, clock, lines_of, mebibytes
from weft.deploy.jobs.ledger import RUNNING, WAITING, JobState

ENDED = JobState("ended")
SYSTEMS = [SLURM, PBS, GRID_ENGINE, LSF]
FULL = JobRequest(
    name="c",
    cores=4,
    memory=2**30,
    walltime_s=5400,
    queue="long",
    account="lab",
    logs="/logs",
    extra=["--extra"],
)


def failed(reason: str) -> JobState:
    return JobState("ended", reason, failed=True)


@pytest.mark.parametrize(
    ("system", "text", "alone", "third"),
    [
        (SLURM, "4711\n", "4711", "4711_3"),
        (SLURM, "4711;cluster\n", "4711", "4711_3"),
        (GRID_ENGINE, "4711\n", "4711", "4711.3"),
        (GRID_ENGINE, "4711.1-4:1\n", "4711", "4711.3"),
        (LSF, "Job <4711> is submitted to default queue <normal>.\n", "4711", "4711[3]"),
        (PBS, "4711[].server\n", "4711[].server", "4711[3].server"),
    ],
)
def test_the_ids_of_jobs_are_read_from_what_the_submission_prints(system, text, alone, third):
    assert system.submitted(text, 1) == [alone]
    assert system.submitted(text, 4)[2] == third


QSTAT_PBS = """\
Job Id: 4711[1].server
    Job_Name = c
    job_state = R
    comment = Job run at Mon Nov 30 at 10:00 on (node1:ncpus=4)
Job Id: 4711[2].server
    Job_Name = c
    job_state = Q
    comment = Not Running: Insufficient amount of resource: ncpus (R: 4 A: 0
\t T: 8)
Job Id: 4711[3].server
    job_state = X
    Exit_status = 0
Job Id: 4712.server
    job_state = F
    comment = Job run at Mon Nov 30 at 10:00 on (node1:ncpus=4) and exceeded resource walltime
    Exit_status = -29
Job Id: 4713.server
    job_state = F
    Exit_status = 265
Job Id: 4714.server
    job_state = H
"""
QSTAT_SGE = """\
<?xml version='1.0'?>
<job_info  xmlns:xsd="http://arc.liv.ac.uk/repos/darcs/sge/source/dist/util/resources/schemas/qstat/qstat.xsd">
  <queue_info>
    <job_list state="running">
      <JB_job_number>5</JB_job_number><state>r</state><tasks>1</tasks>
    </job_list>
    <job_list state="running"><JB_job_number>7</JB_job_number><state>dr</state></job_list>
  </queue_info>
  <job_info>
    <job_list state="pending">
      <JB_job_number>5</JB_job_number><state>qw</state><tasks>2</tasks>
    </job_list>
    <job_list state="pending"><JB_job_number>6</JB_job_number><state>Eqw</state></job_list>
    <job_list state="pending"><JB_job_number>8</JB_job_number><state>hqw</state></job_list>
  </job_info>
</job_info>
"""
BJOBS = """\
4711|1|RUN|-|-|-
4711|2|PEND|-|-|Job slot limit reached; 3 hosts;
4712|0|EXIT|130|TERM_RUNLIMIT: job killed after reaching LSF run time limit|-
4713|0|DONE|-|-|-
4714|0|PSUSP|-|-|-
Job <4715> is not found
"""


@pytest.mark.parametrize(
    ("system", "text", "expected"),
    [
        (
            SLURM,
            "3_1|RUNNING|None\n3_2|PENDING|Resources\n3_3|COMPLETED|None\n"
            "4|PENDING|JobHeldUser\n5|TIMEOUT|TimeLimit\n6|NODE_FAIL|NodeDown\n"
            "7|OUT_OF_MEMORY|OutOfMemory\n8|PREEMPTED|None\n9|COMPLETING|None\n",
            {
                "3_1": RUNNING,
                "3_2": JobState("waiting", "Resources"),
                "3_3": ENDED,
                "4": JobState("waiting", "JobHeldUser", hint="it is held: scontrol release"),
                "5": failed("TIMEOUT: the time limit"),
                "6": failed("NODE_FAIL: its node has failed"),
                "7": failed("OUT_OF_MEMORY: the job took more memory than it had asked for"),
                "8": failed("PREEMPTED: a job of higher priority took its place"),
                "9": RUNNING,
            },
        ),
        (
            PBS,
            QSTAT_PBS,
            {
                "4711[1].server": RUNNING,
                "4711[2].server": JobState(
                    "waiting",
                    "Not Running: Insufficient amount of resource: ncpus (R: 4 A: 0 T: 8)",
                ),
                "4711[3].server": ENDED,
                "4712.server": failed(
                    "Job run at Mon Nov 30 at 10:00 on (node1:ncpus=4) and exceeded resource "
                    "walltime, exit status -29"
                ),
                "4713.server": failed("signal 9"),
                "4714.server": JobState("waiting", "held", hint="it is held: qrls"),
            },
        ),
        (
            GRID_ENGINE,
            QSTAT_SGE,
            {
                "5.1": RUNNING,
                "5.2": WAITING,
                "6": JobState(
                    "waiting",
                    "state Eqw",
                    hint="it could not be started: qstat -j 6 has the reason, qmod -cj clears it",
                ),
                "7": RUNNING,
                "8": JobState("waiting", "held", hint="it is held: qrls"),
            },
        ),
        (
            LSF,
            BJOBS,
            {
                "4711[1]": RUNNING,
                "4711[2]": JobState("waiting", "Job slot limit reached; 3 hosts"),
                "4712": failed(
                    "TERM_RUNLIMIT: job killed after reaching LSF run time limit, exit code 130, "
                    "as after signal 2"
                ),
                "4713": ENDED,
                "4714": JobState("waiting", hint="it is held: bresume"),
            },
        ),
    ],
    ids=["slurm", "pbs", "sge", "lsf"],
)
def test_the_states_of_jobs_are_read(system, text, expected):
    assert system.states(text) == expected


def test_the_end_of_a_job_of_slurm_has_its_exit_code():
    scontrol, sacct = SLURM.inquiries
    shown = (
        "JobId=5 JobName=c JobState=FAILED Reason=NonZeroExitCode Requeue=1 ExitCode=127:0 Run=1"
    )
    assert scontrol.read(shown, "5") == failed("FAILED: exit code 127, a command was not found")
    assert scontrol.read("", "5") is None
    rows = "5|CANCELLED by 1000|0:15\n5_1|OUT_OF_MEMORY|0:125\n6|COMPLETED|0:0\n"
    assert sacct.read(rows, "5") == failed("CANCELLED: by the batch system or its user, signal 15")
    assert sacct.read(rows, "6") == ENDED
    assert sacct.read(rows, "7") is None


@pytest.mark.parametrize(
    ("lines", "state"),
    [
        ("failed       0\nexit_status  0\n", ENDED),
        ("failed       0\nexit_status  3\n", failed("exit code 3")),
        (
            "failed       100 : assumedly after job\nexit_status  137                  (Killed)\n",
            failed("assumedly after job, exit code 137, as after signal 9"),
        ),
        (
            "failed       37  : qmaster enforced h_rt, h_cpu, or h_vmem limit\nexit_status  137\n",
            failed(
                "qmaster enforced h_rt, h_cpu, or h_vmem limit, exit code 137, as after signal 9"
            ),
        ),
        ("error: job id 3 not found\n", None),
    ],
)
def test_the_end_of_a_job_of_grid_engine_is_read_from_its_accounting(lines, state):
    (qacct,) = GRID_ENGINE.inquiries
    assert qacct.read(f"{'=' * 62}\nqname        all.q\n{lines}", "3") == state
    assert qacct.command("3.2") == ("qacct", "-j", "3", "-t", "2")


@pytest.mark.parametrize(
    ("system", "command"),
    [
        (SLURM, ["--jobs=3,4"]),
        (PBS, ["3[].s", "4.s"]),
        (LSF, ["3", "4"]),
    ],
)
def test_jobs_of_an_array_are_asked_for_together(system, command):
    ids = {SLURM: ["3_1", "3_2", "4"], PBS: ["3[1].s", "3[2].s", "4.s"], LSF: ["3[1]", "3[2]", "4"]}
    (asked,) = [ids[one] for one in ids if one is system]
    assert [*system.status(asked)][-len(command) :] == command


@pytest.mark.parametrize(
    ("system", "expected"),
    [
        (
            SLURM,
            "--job-name=c --nodes=1 --ntasks=1 --cpus-per-task=4 --mem=1024M --time=01:30:00 "
            "--partition=long --account=lab --signal=B:USR1@90 --open-mode=append "
            "--output=/logs/slurm-%j.out",
        ),
        (
            PBS,
            "-N c -S /bin/bash -l select=1:ncpus=4:mem=1024mb -l walltime=01:30:00 -q long -A lab "
            "-j oe -o /logs/",
        ),
        (
            GRID_ENGINE,
            "-N c -S /bin/bash -cwd -j y -o /logs/ -pe smp 4 -l h_rt=01:30:00 -q long -P lab",
        ),
        (
            LSF,
            '-J "c" -n 4 -R "span[hosts=1]" -M 1024MB -R "rusage[mem=1024MB]" -W 01:30 -q long '
            "-P lab -o /logs/lsf-%J.out",
        ),
    ],
    ids=["slurm", "pbs", "sge", "lsf"],
)
def test_directives_ask_for_what_is_given(system, expected):
    assert " ".join(system.directives(FULL)) == expected


def script_of(system: BatchSystem, n: int = 1, logs: str = "/logs", **options: object) -> str:
    names = [f"my-c-{i}" for i in range(7, 7 + n)]
    request = JobRequest(name="my-c", n=n, grace_s=1, **options)  # type: ignore[arg-type]
    command = ["echo", "two words"]
    return make_script(system, request, names, command, logs=logs, prologue=["module() { :; }"])


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.title)
@pytest.mark.parametrize("n", [1, 3])
def test_the_script_runs_its_command_with_the_name_and_the_lifetime(system, n, tmp_path):
    script = script_of(system, n, str(tmp_path), walltime_s=100.0)
    assert script.splitlines()[1].startswith(system.prefix + " ")
    done = subprocess.run(
        ["bash"],
        input=script,
        env={"PATH": "/usr/bin:/bin", system.index: "2"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    name = "my-c-8" if n > 1 else "my-c-7"
    (log,) = tmp_path.iterdir()
    assert log.name == f"{name}.log"
    assert re.fullmatch(f"two words --name {name} --lifetime 9[0-8]s\n", log.read_text())


def test_a_script_without_a_time_limit_gives_no_lifetime(tmp_path):
    script = script_of(LSF, 1, str(tmp_path))
    subprocess.run(["bash"], input=script, text=True, timeout=60, check=True)
    assert (tmp_path / "my-c-7.log").read_text() == "two words --name my-c-7\n"


def test_directives_can_be_added_and_left_out():
    request = JobRequest(name="c", extra=["--gres=gpu:1"], skip=["--mem", "--output"], memory=2**20)
    script = make_script(SLURM, request, ["c-1"], ["true"], logs="/logs")
    assert "#SBATCH --gres=gpu:1\n" in script
    assert "--mem" not in script
    assert "--output" not in script


def test_sizes_and_times_are_rounded_up():
    assert clock(90_061.2) == "25:01:02"
    assert mebibytes(2**20 + 1) == 2
    assert "--time=1-01:00:00" in SLURM.directives(JobRequest("c", walltime_s=90_000))


def test_an_error_of_several_lines_is_told_in_one():
    assert lines_of("Unable to run job: no queue\nExiting.\n") == "Unable to run job: no queue"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"cors": 3}, "SlurmCluster has no option cors=; did you mean cores=?"),
        ({"cores": 3, "wall_time": "1h"}, "no option wall_time=; did you mean walltime=?"),
        ({"cores": 3, "nosuch": 1}, "no option nosuch=; see help.weft.deploy.SlurmCluster"),
        ({}, r"SlurmCluster needs the number of cores of each job: SlurmCluster.cores=8"),
    ],
)
def test_an_option_that_does_not_exist_is_refused_with_advice(given, text):
    with pytest.raises(TypeError, match=text):
        SlurmCluster(**given)
