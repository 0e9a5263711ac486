"""Jobs and the command line."""

from __future__ import annotations

from ..calls.row import Call

JOBS = [
    Call(
        "JobSubmissionClient(address).submit_job(entrypoint=)",
        """
    job = jobs.submit_job(entrypoint="echo hello")
    until(lambda: jobs.get_job_status(job) == "SUCCEEDED")
    """,
        """
    job = client.submit(weft.Command("echo hello"), detached=True)
    client.job_result(job.key, timeout=60).stdout == "hello\\n"
    """,
        "`client.submit(weft.Command(command), detached=True)`",
    ),
    Call(
        "submit_job(submission_id=, metadata=)",
        """
    jobs.submit_job(entrypoint="true", submission_id="mine", metadata={"a": "b"}) == "mine"
    """,
        """
    options = {"key": "mine", "meta": {"a": "b"}, "detached": True}
    client.submit(weft.Command("true"), **options).key == "mine"
    """,
        "`client.submit(command, key=, meta=, detached=True)`",
    ),
    Call(
        "submit_job(runtime_env=)",
        """
    env = {"env_vars": {"MODE": "a"}}
    job = jobs.submit_job(entrypoint="echo mode $MODE", runtime_env=env)
    until(lambda: "mode a" in jobs.get_job_logs(job))
    """,
        """
    job = client.submit(weft.Command("echo mode $MODE", env={"MODE": "a"}), detached=True)
    client.job_result(job.key, timeout=60).stdout == "mode a\\n"
    """,
        "`weft.Command(command, env=, cwd=, inputs=)`",
    ),
    Call(
        "submit_job(entrypoint_num_cpus=, entrypoint_memory=, entrypoint_resources=)",
        """
    job = jobs.submit_job(entrypoint="true", entrypoint_num_cpus=1)
    until(lambda: jobs.get_job_status(job) == "SUCCEEDED")
    """,
        """
    job = client.submit(weft.Command("true"), cores=1, detached=True)
    client.job_result(job.key, timeout=60).returncode == 0
    """,
        "`client.submit(command, cores=, memory=, resources=, detached=True)`",
    ),
    Call(
        "get_job_status(), get_job_info()",
        """
    job = jobs.submit_job(entrypoint="false")
    until(lambda: jobs.get_job_status(job) == "FAILED")
    """,
        """
    job = client.submit(weft.Command("false"), detached=True)
    until(lambda: client.job(job.key).state == "failed")
    """,
        "`client.job(key)`",
    ),
    Call(
        "list_jobs()",
        """
    job = jobs.submit_job(entrypoint="true")
    any(found.submission_id == job for found in jobs.list_jobs())
    """,
        """
    job = client.submit(weft.Command("true"), detached=True, pure=False)
    any(found.key == job.key for found in client.jobs())
    """,
        "`client.jobs()`",
    ),
    Call(
        "get_job_logs(), tail_job_logs()",
        """
    job = jobs.submit_job(entrypoint="echo logged")
    until(lambda: "logged" in jobs.get_job_logs(job))
    """,
        """
    job = client.submit(weft.Command("echo logged"), detached=True)
    client.job_result(job.key, timeout=60)
    "logged" in client.job_output(job.key).stdout
    """,
        "`client.job_output(key)`",
    ),
    Call(
        "stop_job()",
        """
    job = jobs.submit_job(entrypoint="sleep 100")
    until(lambda: jobs.get_job_status(job) == "RUNNING")
    jobs.stop_job(job) and until(lambda: jobs.get_job_status(job) == "STOPPED")
    """,
        """
    job = client.submit(weft.Command("sleep 100"), detached=True)
    client.cancel_job(job.key)
    until(lambda: client.job(job.key).state == "cancelled")
    """,
        "`client.cancel_job(key)`",
    ),
    Call(
        "delete_job()",
        """
    job = jobs.submit_job(entrypoint="true")
    until(lambda: jobs.get_job_status(job) == "SUCCEEDED")
    jobs.delete_job(job)
    """,
        """
    job = client.submit(weft.Command("true # 2"), detached=True)
    client.job_result(job.key, timeout=60)
    client.forget_job(job.key)
    isinstance(error_of(client.job, job.key), KeyError)
    """,
        "`client.forget_job(key)`",
    ),
]

COMMANDS = [
    Call(
        "`ray start --head`, `ray start --address=`, `ray stop`",
        '''
    alone("""
    ray start --head --port=6398 --num-cpus=1 --include-dashboard=false
    python -c 'import ray; ray.init("127.0.0.1:6398"); print(len(ray.nodes()))'
    ray stop >/dev/null && echo stopped
    """) == "stopped"
    ''',
        """
    with daemons(worker=("--nthreads", "1")) as (other, path):
        done = other.submit(inc, 1).result()
        ended = command("stop", "--yes", connection=path)
    done == 2 and ended
    """,
        "`weft scheduler`, `weft worker`, `weft stop`",
    ),
    Call(
        "`ray start --num-cpus --num-gpus --resources --memory`",
        '''
    alone("""
    ray start --head --port=6397 --num-cpus=3 --resources='{"tpu": 2}' --include-dashboard=false
    python -c 'import ray; ray.init("127.0.0.1:6397"); print(ray.cluster_resources()["tpu"])'
    """) == "2.0"
    ''',
        """
    options = "--nthreads", "3", "--resources", "tpu=2", "--memory-limit", "1GB"
    with daemons(worker=options) as (other, _): n = sum(other.nthreads().values())
    n == 3
    """,
        "`weft worker --nthreads 3 --resources 'tpu=2' --memory-limit 1GB`",
    ),
    Call(
        "`ray start --block`",
        '''
    alone("""
    timeout -s INT 30 ray start --head --port=6396 --include-dashboard=false --block || true
    """) != ""
    ''',
        """
    with daemons() as (other, _): status = other.status
    status == "running"
    """,
        "`weft scheduler` runs until Ctrl-C",
    ),
    Call("`ray status`", 'command("status")', 'command("status")', "`weft status`, `weft top`"),
    Call("`ray list nodes`", 'command("list", "nodes")', 'command("info")', "`weft info`"),
    Call(
        "`ray list tasks`",
        'command("list", "tasks")',
        'command("info")',
        "`weft info`, `weft top`",
    ),
    Call(
        "`ray list actors`",
        'command("list", "actors")',
        'command("info")',
        "`weft info`",
    ),
    Call(
        "`ray get tasks ID`",
        """
    ref = inc.remote(1)
    ray.get(ref)
    until(lambda: command("get", "tasks", ref.task_id().hex()))
    """,
        """
    future = client.submit(inc, 201)
    future.result()
    command("info", future.key)
    """,
        "`weft info KEY`, `weft explain KEY`",
    ),
    Call(
        "`ray summary tasks`",
        'command("summary", "tasks")',
        'command("info")',
        "`weft info`",
    ),
    Call(
        "`ray logs`",
        'command("logs", "cluster")',
        'command("logs")',
        "`weft logs`",
    ),
    Call(
        "`ray memory`",
        'command("memory")',
        'command("info")',
        "`weft info`, `weft top`; `client.nbytes()`",
    ),
    Call(
        "`ray timeline`",
        'command("timeline")',
        'command("timeline", "--seconds", "0.5", "--chrome", str(folder / "trace.json"))',
        "`weft timeline --chrome FILE`",
    ),
    Call(
        "`ray stack`",
        'command("stack", "--help")',
        """
    path = gate()
    runs = client.submit(hold, path)
    until(lambda: os.path.exists(path + "-begun"))
    command("profile", "--seconds", "0.5")
    """,
        "`weft profile`; `client.call_stack()`",
    ),
    Call(
        "`ray dashboard`",
        'command("dashboard", "--help")',
        'command("dashboard")',
        "`weft dashboard` prints a link",
    ),
    Call(
        "`ray health-check`",
        'command("health-check")',
        'command("status")',
        "`weft status`, by its exit code; `weft doctor`",
    ),
    Call(
        "`ray microbenchmark`",
        'command("microbenchmark", "--help")',
        'command("selftest")',
        "`weft selftest` runs small tasks",
    ),
    Call(
        "`ray job submit -- command`",
        'command("job", "submit", "--", "echo", "hello")',
        'command("submit", "--", "echo", "hello")',
        "`weft submit -- command`",
    ),
    Call(
        "`ray job submit --no-wait`",
        'command("job", "submit", "--no-wait", "--", "true")',
        'command("submit", "--detach", "--", "true")',
        "`weft submit --detach -- command`",
    ),
    Call("`ray job list`", 'command("job", "list")', 'command("queue")', "`weft queue`"),
    Call(
        "`ray job status ID`, `ray job logs ID`",
        """
    job = jobs.submit_job(entrypoint="echo hello")
    until(lambda: jobs.get_job_status(job) == "SUCCEEDED")
    command("job", "status", job) and command("job", "logs", job)
    """,
        """
    job = client.submit(weft.Command("echo hello"), detached=True, key="hello")
    command("wait", "hello") and command("output", "hello")
    """,
        "`weft wait KEY`, `weft output KEY`",
    ),
    Call(
        "`ray job stop ID`, `ray job delete ID`",
        """
    job = jobs.submit_job(entrypoint="sleep 100")
    until(lambda: jobs.get_job_status(job) == "RUNNING")
    command("job", "stop", job) and command("job", "delete", job)
    """,
        """
    job = client.submit(weft.Command("sleep 100"), detached=True, key="long")
    command("cancel", "long") and command("forget", "long")
    """,
        "`weft cancel KEY`, `weft forget KEY`",
    ),
    Call(
        "`ray drain-node`",
        'command("drain-node", "--help")',
        """
    before = len(client.nthreads())
    [name, *_] = [facts["name"] for facts in client.scheduler_info()["workers"].values()]
    command("retire", name) and len(client.nthreads()) == before - 1
    """,
        "`weft retire WORKER`",
    ),
    Call(
        "`ray up`, `ray down`, `ray attach`, `ray exec`, `ray submit`, `ray rsync-up`",
        'command("up", "--help") and command("submit", "--help")',
        'command("ssh", "--help")',
        "`weft ssh HOST...`; batch systems and Kubernetes have pages of their own",
    ),
    Call(
        "`ray debug`",
        'command("debug", "--help")',
        'command("bundle", "--help")',
        "`weft bundle KEY`: one file with what helps; `client.recreate_error_locally(future)`",
    ),
]
