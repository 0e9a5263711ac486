"""The alert rules, by Prometheus' own tests of rules."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.tools.find import tool

ROOT = Path(__file__).parents[3]
RULES = ROOT / "deploy" / "monitoring" / "rules.yaml"
TESTS = Path(__file__).with_name("rules_test.yaml")


def _promtool(*arguments: str | Path) -> str:
    done = subprocess.run(
        [tool("promtool"), *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_each_alert_fires_when_it_should_and_not_beside_it() -> None:
    _promtool("test", "rules", TESTS)


@pytest.mark.slow
def test_prometheus_accepts_the_example_configuration(tmp_path: Path) -> None:
    text = (RULES.with_name("prometheus.yaml")).read_text()
    (tmp_path / "weft-rules.yaml").write_text(RULES.read_text())
    (tmp_path / "token").write_text("x")
    file = tmp_path / "prometheus.yaml"
    file.write_text(text.replace("/etc/prometheus/weft-token", str(tmp_path / "token")))
    _promtool("check", "config", file)


def _alerts() -> list[str]:
    return re.findall(r"^ +- alert: (\w+)$", RULES.read_text(), re.MULTILINE)


def test_each_alert_has_a_test_and_a_section_in_the_docs() -> None:
    alerts = _alerts()
    assert len(alerts) >= 8
    tests = TESTS.read_text()
    docs = (ROOT / "docs" / "monitoring.md").read_text()
    for alert in alerts:
        assert len(re.findall(rf"alertname: {alert}\n", tests)) >= 1, alert
        assert f"\n### {alert}\n" in docs, f"docs/monitoring.md says nothing of {alert}"
        assert f"docs/monitoring.md#{alert.lower()}\n" in RULES.read_text()
