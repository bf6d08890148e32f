#!/usr/bin/env bash
# The rules and the dashboard of k8s/observe, by Prometheus' own tools: rules are read, each alert fires when it should
# and not otherwise, and a real Prometheus that scrapes a demo answers every query. Needs `prometheus` and `promtool`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

for tool in promtool prometheus; do
  if ! command -v "$tool" >/dev/null; then
    echo "SKIPPED k8s/observe: there is no $tool (Debian: apt-get install --no-install-recommends prometheus)"
    exit 0
  fi
done

promtool check rules k8s/observe/rules.yaml
promtool test rules tests/k8s/rules.test.yaml
.venv/bin/python -m tests.k8s.ask_prometheus
