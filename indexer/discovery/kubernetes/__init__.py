"""Engines in pods of a Kubernetes cluster: which there are, where they publish, which process runs, which are ready.

    API server -> api -> watch -> pod -> reading (arguments) -> picture -> whoever was to be told
                  I/O    I/O      the pure part                 told by `discoverer`, which asks engines by `asking`

One watch a namespace; readings are all that is kept of pods. `indexer/decisions/0046` says why it is so.
"""

from indexer.discovery.kubernetes.discoverer import KubernetesDiscoverer, rules_of
from indexer.discovery.kubernetes.look import look_at_pods

__all__ = ["KubernetesDiscoverer", "look_at_pods", "rules_of"]
