"""Renders every overlay of `k8s/` and holds what comes out against the schemas of several versions of Kubernetes.

Run by `run.sh` beside it, in an environment of its own, from the root of the repository: `check_overlays.py KUBECTL`.
Kinds that no version of Kubernetes knows, those of Prometheus, KEDA and the Gateway API, are named and left out.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml

VERSIONS = ("1.30", "1.32", "1.34", "1.37")
ROOT = Path("k8s")
OWN_GROUPS = ("", "apps", "autoscaling", "networking.k8s.io", "policy")
"""Of `apiVersion`, those whose schemas come with Kubernetes."""


def _rendered(kubectl: str, folder: Path) -> list[dict[str, Any]]:
    """All documents of an overlay. Raises where it cannot be rendered, with what kubectl says on stderr."""
    told = subprocess.run([kubectl, "kustomize", str(folder)], stdout=subprocess.PIPE, text=True, check=True).stdout
    return list(yaml.safe_load_all(told))


def _with_components(kubectl: str, components: list[str]) -> list[dict[str, Any]]:
    """The base with these beside it, as somebody's own overlay would take them."""
    told = {"resources": ["../../base"], "components": [f"../../components/{each}" for each in components]}
    folder = ROOT / "overlays" / ".checked"
    folder.mkdir()
    try:
        (folder / "kustomization.yaml").write_text(yaml.safe_dump(told))
        return _rendered(kubectl, folder)
    finally:
        (folder / "kustomization.yaml").unlink(missing_ok=True)
        folder.rmdir()


def _problems(document: dict[str, Any]) -> list[str]:
    """What each version says against it."""
    found = []
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(document, version, strict=True)
        except (kubernetes_validate.ValidationError, kubernetes_validate.SchemaNotFoundError) as error:
            found.append(f"{version}: {document['kind']} {document['metadata']['name']}: {error}")
    return found


def _is_known(document: dict[str, Any]) -> bool:
    group, _, version = document["apiVersion"].rpartition("/")
    return bool(version) and group in OWN_GROUPS


def main() -> int:
    """Say of each what was held against what; 1 where something was found, or nothing was there to be held."""
    kubectl = sys.argv[1]
    sets = {folder.name: _rendered(kubectl, folder) for folder in sorted((ROOT / "overlays").iterdir())}
    sets["store, keda, service-monitor"] = _with_components(kubectl, ["store", "keda", "service-monitor"])
    sets["engines"] = list(yaml.safe_load_all((ROOT / "engines" / "vllm.yaml").read_text()))
    code = 0
    for name, documents in sets.items():
        known = [each for each in documents if _is_known(each)]
        others = sorted({each["kind"] for each in documents if not _is_known(each)})
        problems = [problem for each in known for problem in _problems(each)]
        left_out = f"; without a schema: {', '.join(others)}" if others else ""
        print(f"{name}: {len(known)} resources, Kubernetes {', '.join(VERSIONS)}: {len(problems)} problems{left_out}")
        print("".join(f"  {problem}\n" for problem in problems), end="")
        code |= bool(problems) or not known
    return code


if __name__ == "__main__":
    sys.exit(main())
