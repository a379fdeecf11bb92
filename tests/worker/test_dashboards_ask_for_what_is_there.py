"""The Grafana dashboard and the alert rules name only metrics and labels that workers serve."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from emberpool.activities.measures import MEASURES, SDK_BUCKETS, Kind

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
METRIC = re.compile(r"\b((?:emberpool|temporal)_[a-z0-9_]+)(?:\{([^}]*)\})?")
LABEL = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
GROUPED = re.compile(r"\bby \(([^)]*)\)")
SDK = {f"{name}_seconds" for name in SDK_BUCKETS} | {"temporal_worker_task_slots_available"}
SDK_LABELS = {"le", "task_queue", "worker_type"}
PARTS = ("_bucket", "_sum", "_count")
SERVED = {measure.name: measure for measure in MEASURES}


def dashboard() -> dict[str, Any]:
    """The Grafana dashboard."""
    data: dict[str, Any] = json.loads((DEPLOY / "dashboards" / "emberpool.json").read_text())
    return data


def rules() -> list[dict[str, Any]]:
    """Every alert rule."""
    data = yaml.safe_load((DEPLOY / "alerts" / "emberpool.yaml").read_text())
    return [rule for group in data["groups"] for rule in group["rules"]]


def expressions() -> list[str]:
    """Every PromQL expression of both."""
    panels = [panel for panel in dashboard()["panels"] if panel["type"] != "row"]
    return [target["expr"] for panel in panels for target in panel["targets"]] + [rule["expr"] for rule in rules()]


@pytest.mark.parametrize("expression", expressions())
def test_an_expression_names_what_is_served(expression: str) -> None:
    """Metric by metric, with its suffix and its labels; brackets are even."""
    found = METRIC.findall(expression)
    assert found, expression
    grouped = {name.strip() for names in GROUPED.findall(expression) for name in names.split(",")}
    for name, selector in found:
        labels = set(LABEL.findall(selector)) | grouped
        if name.startswith("temporal_"):
            assert name.removesuffix("_bucket") in SDK and labels <= SDK_LABELS, expression
            continue
        part = next((part for part in PARTS if name.endswith(part)), "")
        measure = SERVED.get(name) or SERVED[name.removesuffix(part)]
        assert (measure.kind is Kind.HISTOGRAM) == bool(part), f"{name}: only histograms have parts"
        assert labels - {"le"} <= set(measure.labels), expression
    for pair in ("()", "{}", "[]"):
        assert expression.count(pair[0]) == expression.count(pair[1])


def test_every_measure_is_on_the_dashboard() -> None:
    """What is worth counting is worth seeing; the index's own health is an alert."""
    shown = " ".join(expressions())
    assert [name for name in SERVED if name not in shown] == []


def test_the_dashboard_is_one_that_grafana_takes() -> None:
    """Panels have ids of their own and do not overlap; each one says what it shows."""
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells) and max(x for x, _ in cells) == 23
    assert all(panel["description"] for panel in panels if panel["type"] != "row")


def test_every_alert_says_what_to_do() -> None:
    """Each has a severity, a summary and a runbook line, and a name of its own."""
    assert len({rule["alert"] for rule in rules()}) == len(rules()) >= 8
    for rule in rules():
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert rule["annotations"]["summary"].strip() and rule["annotations"]["runbook"].strip()
