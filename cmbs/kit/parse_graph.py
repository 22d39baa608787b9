"""From a document to a kit over a causal graph, or to one that lists its hypotheses: whichever it is."""

from __future__ import annotations

from dataclasses import dataclass

from cmbs.documents.findings import Finding, Path, Rule
from cmbs.documents.nodes import Node
from cmbs.errors import InvalidKit
from cmbs.kit.graph_kit import EVERY_KIND, Effect, GraphKit, GraphOutcome, GraphProbe, NodeKind
from cmbs.kit.model import Kit, Soundness
from cmbs.kit.parse import (
    GRAPH,
    KIT_FIELDS,
    OUTCOME_FIELDS,
    PROBE_FIELDS,
    KitReader,
    find_field,
    parse_kit_node,
    read_kit_node,
    read_kit_text,
)
from cmbs.kit.rules import KitRule

MAX_GRAPH_PROBES = 100

GRAPH_KIT_FIELDS = {name: required for name, required in KIT_FIELDS.items() if name != "hypotheses"} | {GRAPH: True}
GRAPH_FIELDS = {"hypotheses": False, "assumption": True}
GRAPH_PROBE_FIELDS = PROBE_FIELDS | {"components": False}
GRAPH_OUTCOME_FIELDS = {name: required for name, required in OUTCOME_FIELDS.items() if name != "keeps"} | {
    "eliminates": True
}


@dataclass(frozen=True, slots=True)
class ParsedDocument:
    """A kit of either sort that may be used, and the warnings about it."""

    kit: Kit | GraphKit
    warnings: tuple[Finding, ...]


def parse_kit_document(data: bytes, name: str) -> ParsedDocument:
    """The kit in a file of this name; `InvalidKitFile` has everything that is wrong."""
    document = read_kit_text(data, name)
    if find_field(document, GRAPH) is None:
        parsed = parse_kit_node(document, name)
        return ParsedDocument(parsed.kit, parsed.warnings)
    reader = _GraphKitReader("the kit")
    return ParsedDocument(read_kit_node(reader, reader.read_graph_kit, document, name), ())


class _GraphKitReader(KitReader):
    def read_graph_kit(self, document: Node) -> GraphKit | None:
        fields = self.read_fields(document, (), GRAPH_KIT_FIELDS)
        if fields is None:
            return None
        head = self.read_head(fields)
        graph = self.read_fields(fields[GRAPH], (GRAPH,), GRAPH_FIELDS) or {}
        kinds = self._read_kinds(graph.get("hypotheses"), (GRAPH, "hypotheses"))
        assumption = self.read_text(graph.get("assumption"), (GRAPH, "assumption"))
        if assumption is not None and not assumption.strip():
            message = "is empty: say what has to be true of the world for an elimination to be right"
            self.refuse_value(Rule.MISSING_FIELD, message, (GRAPH, "assumption"), graph["assumption"].place)
        probes = self.read_declared(
            fields["probes"],
            ("probes",),
            MAX_GRAPH_PROBES,
            lambda node, path: self._read_graph_probe(node, path, head.soundness),
            ("probe", "probe_id"),
        )
        if self.findings or head.kit_id is None or head.version is None or assumption is None:
            return None
        return GraphKit(
            head.kit_id,
            head.version,
            head.title,
            kinds,
            assumption,
            tuple(probes.values()),
            head.description,
            head.source,
        )

    def _read_graph_probe(self, node: Node, path: Path, inherited: Soundness | None) -> GraphProbe | None:
        before = len(self.findings)
        parts = self.read_probe_parts(node, path, GRAPH_PROBE_FIELDS, inherited, self._read_graph_outcome)
        if parts is None:
            return None
        kinds = self._read_kinds(parts.fields.get("components"), (*path, "components"))
        if len(self.findings) > before:
            return None
        try:
            return GraphProbe(parts.probe_id, parts.prompt, kinds, parts.outcomes, parts.reading, parts.window)
        except InvalidKit as exc:
            self.refuse(KitRule.BAD_GRAPH_PROBE, f"{self.describe(path)}: {exc}", path, node.place)
            return None

    def _read_graph_outcome(self, node: Node, path: Path, inherited: Soundness | None) -> GraphOutcome | None:
        fields = self.read_fields(node, path, GRAPH_OUTCOME_FIELDS)
        if fields is None:
            return None
        outcome_id = self.read_outcome_id(fields, path)
        label = self.read_text(fields.get("label"), (*path, "label")) or ""
        effect = self.read_word(fields["eliminates"], (*path, "eliminates"), Effect)
        soundness = self.read_soundness(node, fields, path, inherited, eliminates=effect is Effect.THROUGH)
        if outcome_id is None or effect is None:
            return None
        return GraphOutcome(outcome_id, effect, soundness, label)

    def _read_kinds(self, node: Node | None, path: Path) -> frozenset[NodeKind]:
        """Types of nodes; all of them where none are named."""
        if node is None:
            return EVERY_KIND
        found = [self.read_word(item, item_path, NodeKind) for item_path, item in self.read_items(node, path, 100)]
        if not found:
            message = "names no type of nodes; leave it out for all of them"
            self.refuse_value(Rule.MISSING_FIELD, message, path, node.place)
        return frozenset(each for each in found if each is not None)
