"""Prometheus and Grafana for a cluster: the dashboard, alert rules, and a command for both."""

from __future__ import annotations
