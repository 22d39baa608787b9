"""Systems that break: known faults, where they begin, what they spread to, and which alerts tell."""

from cmbs.adapters.sre.faults import Alert, Component, KnownFault, System
from cmbs.adapters.sre.graph import causal_graph
from cmbs.adapters.sre.kits import AFFECTED, FIRING, HEALTHY, SILENT, World, cycles, signature_kit, structural_kit

__all__ = [
    "AFFECTED",
    "FIRING",
    "HEALTHY",
    "SILENT",
    "Alert",
    "Component",
    "KnownFault",
    "System",
    "World",
    "causal_graph",
    "cycles",
    "signature_kit",
    "structural_kit",
]
