"""Optuna on a cluster: trials that fail, and workers that share the storage of a study."""

from __future__ import annotations

import os
import signal

import optuna
import pytest

import weft

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]


def parabola(x):
    if x > 5:
        raise ValueError(f"{x} is too large")
    return (x - 2) ** 2


def optimize(path, n_trials, killed=None):
    """Run trials of the study in a file; the first worker dies in one of them."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    backend = optuna.storages.journal.JournalFileBackend(path)
    storage = optuna.storages.JournalStorage(backend)
    study = optuna.load_study(study_name="shared", storage=storage)

    def objective(trial):
        if killed is not None and not os.path.exists(killed):
            open(killed, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return (trial.suggest_float("x", -10, 10) - 2) ** 2

    study.optimize(objective, n_trials=n_trials)
    return os.getpid()


def test_trials_that_fail_are_told_as_failed_and_the_study_goes_on(client):
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    trials = {}
    completed = weft.as_completed()

    def ask():
        trial = study.ask()
        future = client.submit(parabola, trial.suggest_float("x", -10, 10), pure=False)
        trials[future] = trial
        completed.add(future)

    for _ in range(4):
        ask()
    for future in completed:
        if future.exception() is None:
            study.tell(trials.pop(future), future.result())
        else:
            study.tell(trials.pop(future), state=optuna.trial.TrialState.FAIL)
        if len(study.trials) < 20:
            ask()
    states = [trial.state.name for trial in study.trials]
    assert {*states} == {"COMPLETE", "FAIL"}
    assert len(states) == 20


def test_workers_share_the_storage_of_a_study_and_one_that_dies_does_not_end_it(client, tmp_path):
    path = str(tmp_path / "journal")
    backend = optuna.storages.journal.JournalFileBackend(path)
    storage = optuna.storages.JournalStorage(backend)
    study = optuna.create_study(study_name="shared", storage=storage)
    calls = [client.submit(optimize, path, 5, pure=False) for _ in range(3)]
    calls.append(client.submit(optimize, path, 5, str(tmp_path / "killed"), pure=False))
    assert os.getpid() not in client.gather(calls)
    states = [trial.state.name for trial in study.trials]
    assert states.count("COMPLETE") == 20
    assert states.count("RUNNING") == 1  # of the worker that died
