from __future__ import annotations

import json

import pytest

import weft
from tests.deploy.daemons import address_of, daemon, file_of, run, scheduler

pytestmark = pytest.mark.slow


def test_config_shows_each_setting_and_its_source(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('[worker]\nnthreads = 3\nresources = "GPU=2"\n')
    sources = {"WEFT_CONFIG": str(path), "WEFT_SCHEDULER_PORT": "9000"}
    done = run("config", folder=tmp_path, **sources)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert f"nthreads = 3 # {path}, line 2" in lines
    assert f'resources = "GPU=2" # {path}, line 3' in lines
    assert "port = 9000 # $WEFT_SCHEDULER_PORT" in lines
    assert '# orphan-lease = "15m" # default' in lines
    assert f"# {path}" in lines
    one = run("config", "worker.nthreads", folder=tmp_path, **sources)
    assert one.stdout.split() == ["[worker]", *f"nthreads = 3 # {path}, line 2".split()]
    told = json.loads(run("config", "--json", folder=tmp_path, **sources).stdout)
    assert told["worker.nthreads"]["value"] == 3
    assert told["worker.resources"]["value"] == {"GPU": 2}
    assert told["worker.preload"]["value"] == []
    assert told["scheduler.restart"]["value"] is True
    assert told["scheduler.port"]["value"] == 9000
    assert told["scheduler.client-lease"]["value"] == "60s"
    assert told["worker.name"]["value"] is None
    assert told["worker.nthreads"]["source"] == f"{path}, line 2"
    assert told["scheduler.client-lease"]["source"] == "default"


def test_the_output_of_config_is_a_file_that_is_accepted(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('log-level = "debug"\n[scheduler]\nrestart = false\n[worker]\nnthreads = 3\n')
    first = run("config", folder=tmp_path, WEFT_CONFIG=str(path)).stdout
    path.write_text(first)
    second = run("config", "--json", folder=tmp_path, WEFT_CONFIG=str(path))
    given = {
        name: row["value"]
        for name, row in json.loads(second.stdout).items()
        if row["source"] != "default"
    }
    assert given == {"log-level": "debug", "scheduler.restart": False, "worker.nthreads": 3}


@pytest.mark.parametrize("command", ["scheduler", "worker", "config", "info"])
def test_an_unknown_setting_ends_every_command_with_one_line_and_code_2(command, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("[worker]\n\nnthread = 3\n")
    done = run(command, folder=tmp_path, WEFT_CONFIG=str(path))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"weft: {path}, line 3: there is no setting 'worker.nthread'; did you mean nthreads in "
        "[worker]?\n"
    )
    done = run(command, folder=tmp_path, WEFT_WORKER_NTHREAD="3")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith("did you mean $WEFT_WORKER_NTHREADS?\n")
    assert done.stderr.count("\n") == 1


def test_an_unknown_name_asked_of_config_is_one_line(tmp_path):
    done = run("config", "worker.nthread", folder=tmp_path)
    assert done.returncode == 2
    assert "did you mean nthreads in [worker]?" in done.stderr


def test_an_error_about_a_value_names_the_source_of_the_value(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("[scheduler]\nhost = '203.0.113.1'\n")
    done = run("scheduler", "--no-dashboard", folder=tmp_path, WEFT_CONFIG=str(path))
    assert done.returncode == 2
    assert done.stderr.startswith(f"weft: {path}, line 2: '203.0.113.1' is not an address of")


def test_a_cluster_takes_its_settings_from_a_file_the_environment_and_options(
    tmp_path, monkeypatch
):
    path = tmp_path / "weft.toml"
    path.write_text(
        "[scheduler]\nport = 0\ndashboard = false\n"
        "[worker]\nnworkers = 1\nnthreads = 2\nname = 'of-the-file'\nmemory-limit = '1GB'\n"
    )
    with (
        scheduler(folder=tmp_path, WEFT_CONFIG=str(path)) as started,
        daemon(
            *("worker", address_of(started), "--nthreads", "4"),
            folder=tmp_path,
            WEFT_CONFIG=str(path),
            WEFT_WORKER_NAME="of-the-environment",
        ) as worker,
    ):
        worker.wait_for("registered")
        mine = tmp_path / "client.toml"
        mine.write_text(f"connection-file = '{file_of(started)}'\n[client]\ntimeout = 20\n")
        monkeypatch.setenv("WEFT_CONFIG", str(mine))
        with weft.Client() as client:
            (info,) = client.scheduler_info()["workers"].values()
        assert (info["name"], info["nthreads"], info["memory_limit"]) == (
            "of-the-environment",
            4,
            10**9,
        )
        with pytest.raises(TypeError, match=rf"connection-file is set in {mine}, line 1"):
            weft.Client(n_workers=2)
        monkeypatch.setenv("WEFT_CLIENT_TIMEUOT", "1")
        with pytest.raises(weft.ConfigError, match=r"did you mean \$WEFT_CLIENT_TIMEOUT\?"):
            weft.Client()


def test_a_local_cluster_takes_its_settings_from_the_environment(monkeypatch):
    monkeypatch.setenv("WEFT_LOCAL_N_WORKERS", "1")
    monkeypatch.setenv("WEFT_LOCAL_THREADS_PER_WORKER", "3")
    with weft.LocalCluster(processes=False) as cluster:
        assert (cluster.n_workers, cluster.threads_per_worker) == (1, 3)
    with weft.LocalCluster(n_workers=2, processes=False) as cluster:
        assert (cluster.n_workers, cluster.threads_per_worker) == (2, 3)
