"""Where and when workers write results to disk, as settings say."""

from __future__ import annotations

import os

import pytest

import weft
from weft.deploy.workers import spilling
from weft.deploy.workers.spilling import memory_fractions, spill_options
from weft.protocol.errors import ConfigError
from weft.protocol.settings.sources import read_settings
from weft.worker.policy import Fractions, fractions_of


@pytest.fixture
def settings(monkeypatch, tmp_path):
    def given(**values):
        for name, value in values.items():
            monkeypatch.setenv(f"WEFT_WORKER_{name.upper()}", value)
        return read_settings()

    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return given


def test_results_are_written_beside_the_other_files_of_the_workers_by_default(settings, tmp_path):
    options = spill_options(settings(), str(tmp_path), is_named=False)
    assert options["max_spill"] == 0
    assert options["spill_directory"] in (str(tmp_path), "/var/tmp")
    assert fractions_of(options) == Fractions(0.6, 0.7, 0.8, 0.95)


def test_the_parts_of_the_limit_and_the_size_of_all_files_can_be_set(settings, tmp_path):
    given = settings(memory_target="0.5", memory_spill="false", memory_pause="0", max_spill="10MB")
    options = spill_options(given, str(tmp_path), is_named=True)
    assert fractions_of(options) == Fractions(0.5, 0.0, 0.0, 0.95)
    assert options["max_spill"] == 10_000_000
    assert options["spill_directory"] == str(tmp_path)


@pytest.mark.parametrize(
    "off", [{"max_spill": "0"}, {"memory_target": "false", "memory_spill": "no"}]
)
def test_nothing_is_written_if_that_is_switched_off(settings, tmp_path, off):
    assert spill_options(settings(**off), str(tmp_path), is_named=True)["spill_directory"] == ""


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"memory_target": "0.9"}, "spill = 0.7 is lower than target = 0.9"),
        ({"memory_spill": "false", "memory_pause": "0.3"}, "pause = 0.3 is lower than target"),
        ({"memory_terminate": "0.1"}, "terminate = 0.1 is lower than pause = 0.8"),
        ({"memory_terminate": "1.1"}, "is not a part; write for example 0.7"),
    ],
)
def test_parts_in_the_wrong_order_are_an_error_at_the_start(settings, wrong, words):
    with pytest.raises(ConfigError, match=words):
        memory_fractions(settings(**wrong))
    with pytest.raises(ConfigError, match=words):
        weft.LocalCluster(n_workers=1)


def test_a_folder_in_memory_is_replaced_by_one_on_a_disk_unless_the_user_has_named_it(
    settings, monkeypatch, caplog
):
    monkeypatch.setattr(spilling, "is_in_memory", lambda folder: folder.startswith("/mem"))
    monkeypatch.setattr(os, "access", lambda path, mode: True)
    given = settings()
    assert spill_options(given, "/mem/x", is_named=False)["spill_directory"] == "/var/tmp"
    assert not caplog.records
    assert spill_options(given, "/mem/x", is_named=True)["spill_directory"] == "/mem/x"
    assert "make no room" in caplog.text


def test_nothing_is_written_where_there_is_no_folder_on_a_disk(settings, monkeypatch, caplog):
    caplog.set_level("INFO", logger="weft.worker")
    monkeypatch.setattr(spilling, "is_in_memory", lambda folder: True)
    assert spill_options(settings(), "/mem/x", is_named=False)["spill_directory"] == ""
    assert "--local-directory" in caplog.text
