"""k8s/observe/prometheus-rule.yaml out of rules.yaml beside it: the same, as the Prometheus operator takes it."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent
from typing import Final

FOLDER: Final = Path(__file__).parents[2] / "k8s" / "observe"
RULES: Final = FOLDER / "rules.yaml"
FILE: Final = FOLDER / "prometheus-rule.yaml"
HEAD: Final = """# Made of rules.yaml by `python -m tests.repo.rules_resource`; change it there.
# Many operators take only resources with a label of their own choice (`ruleSelector`): add yours.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: kvindexer
  labels: {app: kvindexer}
spec:
"""


def resource() -> str:
    """The whole file."""
    groups = RULES.read_text().partition("\ngroups:\n")[2]
    return HEAD + indent(f"groups:\n{groups}", "  ")


if __name__ == "__main__":
    FILE.write_text(resource())
