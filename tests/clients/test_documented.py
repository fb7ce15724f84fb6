"""``docs/clients.md`` names the versions that are tested. Needs no client, and runs with all other tests."""

from __future__ import annotations

import json
from pathlib import Path

HERE = Path(__file__).parent
DOCUMENT = (HERE.parents[1] / "docs" / "clients.md").read_text()


def test_the_documentation_names_every_client_with_the_tested_version() -> None:
    clients = []
    for path in HERE.glob("requirements-*.txt"):
        for line in path.read_text().partition("# What they need.")[0].splitlines()[1:]:
            name, version = line.split("==")
            clients.append(f"`{name.partition('[')[0]}` {version}")
    node = json.loads((HERE / "node" / "package.json").read_text())["dependencies"]
    clients.append(f"`openai` {node['openai']} (npm)")
    assert len(clients) == 9
    assert [client for client in clients if client not in DOCUMENT] == []
