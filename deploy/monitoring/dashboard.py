"""Make Grafana's dashboard of the table in `panels.py`, with Grafana's own SDK for Python.

    python -m weft.deploy.monitoring.dashboard            # writes grafana/weft.json
    python -m weft.deploy.monitoring.dashboard --stdout

The file is in the repository, because it is imported without Python, and the Helm chart ships it; a
test compares. The SDK is a dependency of the tests only, and needs Python 3.11.
"""

from __future__ import annotations

import json
import sys
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .panels import ROWS, VARIABLES, Panel, Query

if TYPE_CHECKING:
    from grafana_foundation_sdk.builders import prometheus, stat, timeseries
    from grafana_foundation_sdk.models import dashboard as models

FILE: Final = Path(__file__).with_name("grafana") / "weft.json"
#: Also the last part of the dashboard's address in Grafana: it must never change.
UID: Final = "weft-cluster"
_GREEN, _AMBER, _RED = "green", "orange", "red"


def render() -> str:
    """Return the dashboard as JSON.

    Raises:
        ImportError: the SDK is not installed.
    """
    from grafana_foundation_sdk.builders import dashboard
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.models import dashboard as models

    made = (
        dashboard.Dashboard("weft")
        .uid(UID)
        .description("A weft cluster: health, throughput, time, workers, failures, the scheduler.")
        .tags(["weft"])
        .refresh("10s")
        .time("now-30m", "now")
        .timezone("browser")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .with_variable(
            dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus")
        )
    )
    for name, label in VARIABLES.items():
        made.with_variable(
            dashboard.QueryVariable(name)
            .label(name.capitalize())
            .datasource(_source())
            .query(f"label_values(weft_build_info, {label})")
            .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
            .sort(models.VariableSort.ALPHABETICAL_ASC)
            .multi(True)
            .include_all(True)
            # A label that no target has is "", which this matches.
            .all_value(".*")
            .current(models.VariableOption(selected=True, text="All", value="$__all"))
        )
    ids = count(1)
    for row in ROWS:
        made.with_row(dashboard.Row(row.title).id(next(ids)))
        for panel in row.panels:
            made_panel = _number(panel) if panel.is_number else _graph(panel)
            made.with_panel(made_panel.id(next(ids)))
    content = json.loads(JSONEncoder().encode(made.build()))
    for variable in content["templating"]["list"]:
        # The SDK writes these for all variables; Grafana's schema knows them only of intervals.
        for name in ("auto", "auto_count", "auto_min"):
            variable.pop(name, None)
    return json.dumps(content, sort_keys=True, indent=2) + "\n"


def _source() -> models.DataSourceRef:
    """Return the data source that was chosen in the dashboard."""
    from grafana_foundation_sdk.models import dashboard as models

    return models.DataSourceRef(type_val="prometheus", uid="${datasource}")


def _number(panel: Panel) -> stat.Panel:
    from grafana_foundation_sdk.builders import common, dashboard, stat
    from grafana_foundation_sdk.models import common as common_models
    from grafana_foundation_sdk.models import dashboard as models

    made = (
        stat.Panel()
        .title(panel.title)
        .description(panel.text)
        .datasource(_source())
        .unit(panel.unit)
        .span(3)
        .height(4)
        .graph_mode(common_models.BigValueGraphMode.AREA)
        .color_mode(common_models.BigValueColorMode.VALUE)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .thresholds(
            dashboard.ThresholdsConfig()
            .mode(models.ThresholdsMode.ABSOLUTE)
            .steps(_thresholds(panel))
        )
    )
    for query in panel.queries:
        made.with_target(_target(query, panel))
    return made


def _thresholds(panel: Panel) -> list[models.Threshold]:
    """Return the steps from the lowest: a value has the colour of the last one below it."""
    from grafana_foundation_sdk.models import dashboard as models

    if panel.alarm_below is not None:
        return [
            models.Threshold(color=_RED, value=None),
            models.Threshold(color=_GREEN, value=panel.alarm_below),
        ]
    steps = [models.Threshold(color=_GREEN, value=None)]
    if panel.warn_above is not None:
        steps.append(models.Threshold(color=_AMBER, value=panel.warn_above))
    if panel.alarm_above is not None:
        steps.append(models.Threshold(color=_RED, value=panel.alarm_above))
    return steps


def _graph(panel: Panel) -> timeseries.Panel:
    from grafana_foundation_sdk.builders import common, timeseries
    from grafana_foundation_sdk.models import common as common_models

    made = (
        timeseries.Panel()
        .title(panel.title)
        .description(panel.text)
        .datasource(_source())
        .unit(panel.unit)
        .min(0)
        .span(12)
        .height(8)
        .show_points(common_models.VisibilityMode.NEVER)
        .fill_opacity(40 if panel.is_stacked else 8)
        .tooltip(
            common.VizTooltipOptions()
            .mode(common_models.TooltipDisplayMode.MULTI)
            .sort(common_models.SortOrder.DESCENDING)
        )
        .legend(
            common.VizLegendOptions()
            .show_legend(True)
            .display_mode(common_models.LegendDisplayMode.LIST)
            .placement(common_models.LegendPlacement.BOTTOM)
        )
    )
    if panel.is_stacked:
        made.stacking(common.StackingConfig().mode(common_models.StackingMode.NORMAL))
    for query in panel.queries:
        made.with_target(_target(query, panel))
    return made


def _target(query: Query, panel: Panel) -> prometheus.Dataquery:
    from grafana_foundation_sdk.builders import prometheus

    ref_id = "ABCDEFGHIJ"[panel.queries.index(query)]
    made = prometheus.Dataquery().expr(query.expr).ref_id(ref_id).datasource(_source())
    return made.legend_format(query.legend) if query.legend else made


if __name__ == "__main__":
    if "--stdout" in sys.argv[1:]:
        sys.stdout.write(render())
    else:
        FILE.write_text(render(), encoding="utf-8")
        print(f"wrote {FILE.name}")
