"""Dashboard and alerts ask only for metrics, labels and values that the server has, of servers that compose runs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from tests.documents import Document
from transom.server.metrics import Outcome, RefusalReason

FOLDER = Path(__file__).parents[2] / "docker" / "monitoring"
SUFFIXES = ("_bucket", "_sum", "_count")
NOT_OURS = {"up", "process_resident_memory_bytes", "process_cpu_seconds_total"}
LABELS_OF_ALL = {"job", "instance", "le"}
VALUES = {"reason": get_args(RefusalReason), "outcome": get_args(Outcome), "state": ("free", "used")}
METRIC = re.compile(r"\b(transom_\w+|process_\w+|up\b)(\{[^}]*\})?")


def dashboard() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((FOLDER / "grafana" / "transom.json").read_text())
    return loaded


def alerts() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def expressions() -> Iterator[str]:
    for panel in dashboard()["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    yield from (rule["expr"] for rule in alerts())


def metric_labels() -> dict[str, set[str]]:
    """Documented series: every name that a query may use, and its labels."""
    series: dict[str, set[str]] = {}
    for name, kind, labels, _ in Document("metrics.md").tables("Metrics")[0]:
        for suffix in SUFFIXES if kind == "histogram" else ("",):
            series[name + suffix] = set(re.findall(r"\w+", labels))
    return series


@pytest.mark.parametrize("expression", sorted(set(expressions())))
def test_it_asks_for_what_the_server_has(expression: str) -> None:
    documented, labels = metric_labels() | {name: set[str]() for name in NOT_OURS}, set(LABELS_OF_ALL)
    asked = METRIC.findall(expression)
    assert asked
    for metric, selector in asked:
        assert metric in documented
        labels |= documented[metric]
        for label, value in re.findall(r'(\w+)="([^"]*)"', selector):
            assert label == "job" or (label in documented[metric] and value in VALUES[label])
    for group in re.findall(r"(?:by|on) \(([^)]*)\)", expression):
        assert set(re.findall(r"\w+", group)) <= labels


def test_the_dashboard_uses_the_source_that_is_provisioned() -> None:
    (source,) = yaml.safe_load((FOLDER / "grafana" / "datasources.yaml").read_text())["datasources"]
    text = json.dumps(dashboard())
    assert set(re.findall(r'"type": "prometheus", "uid": "(\w+)"', text)) == {source["uid"]}
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_panels_do_not_overlap() -> None:
    places = [panel["gridPos"] for panel in dashboard()["panels"]]
    cells = [
        (x, y)
        for place in places
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


def test_prometheus_finds_the_servers_that_compose_runs() -> None:
    services = yaml.safe_load((FOLDER.parent / "compose.yaml").read_text())["services"]
    config = yaml.safe_load((FOLDER / "prometheus.yaml").read_text())
    (found,), (balancer,) = (job["dns_sd_configs"] for job in config["scrape_configs"])
    assert set(found["names"]) == {name for name, service in services.items() if "build" in service}
    assert found["port"] == 8000
    assert balancer["names"] == ["balancer"]
    assert f"bind :{balancer['port']}" in (FOLDER.parent / "haproxy.cfg").read_text()
    for rule in config["rule_files"]:
        assert f"./monitoring/{rule}:/etc/prometheus/{rule}:ro" in services["prometheus"]["volumes"]


def test_every_alert_says_what_to_do() -> None:
    assert len(alerts()) >= 5
    assert all("{{ $labels.instance }}" in rule["annotations"]["summary"] for rule in alerts())
