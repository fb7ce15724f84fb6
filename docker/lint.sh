#!/usr/bin/env bash
# What has a checker beyond the test suite: make lint-docker. hadolint and shellcheck must be there; Compose (the plugin
# of Docker, or docker-compose), promtool (Debian's prometheus) and haproxy check what they know where they are.
set -euo pipefail
cd "$(dirname "$0")"

has() {
    command -v "$1" >/dev/null || { echo "NOT CHECKED, there is no $1: $2" >&2; return 1; }
}

hadolint Dockerfile
shellcheck ./*.sh

compose=(docker compose)
docker compose version >/dev/null 2>&1 || compose=(docker-compose)
if has "${compose[0]}" compose.yaml; then
    for profile in cpu gpu replicas monitoring; do
        "${compose[@]}" --file compose.yaml --profile "$profile" config --quiet
    done
fi

if has haproxy haproxy.cfg; then
    haproxy -c -q -f haproxy.cfg
fi

if has promtool "monitoring/"; then
    promtool check config monitoring/prometheus.yaml
    scratch=$(mktemp --directory)
    trap 'rm -rf "$scratch"' EXIT
    # The dashboard's queries as rules. JSON is YAML.
    python3 - monitoring/grafana/transom.json >"$scratch/dashboard.yaml" <<'PYTHON'
import json, sys

panels = json.load(open(sys.argv[1]))["panels"]
queries = [(panel["id"], target) for panel in panels for target in panel["targets"]]
rules = [
    {"record": f"panel:{panel}:{target['refId']}", "expr": target["expr"].replace("$__rate_interval", "1m")}
    for panel, target in queries
]
json.dump({"groups": [{"name": "dashboard", "rules": rules}]}, sys.stdout)
PYTHON
    promtool check rules "$scratch/dashboard.yaml"
    promtool test rules monitoring/alerts_test.yaml
fi
