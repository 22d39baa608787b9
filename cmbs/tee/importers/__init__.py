"""Graphs from what other systems export: OpenTelemetry, Kubernetes, Backstage. Pure: from bytes to a graph.

An importer proposes nodes and edges with provenance, and nothing else: merging them twice changes nothing the second
time, and what is known under another type or label stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cmbs.tee.importers.backstage import import_backstage
from cmbs.tee.importers.building import Imported
from cmbs.tee.importers.kubernetes import import_kubernetes
from cmbs.tee.importers.otel import import_otel

__all__ = ["IMPORTERS", "Imported", "import_backstage", "import_kubernetes", "import_otel"]

# By the name that the command line has for each.
IMPORTERS: Mapping[str, Callable[[bytes, str], Imported]] = {
    "otel": import_otel,
    "kubernetes": import_kubernetes,
    "backstage": import_backstage,
}
