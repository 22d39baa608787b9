"""Backstage: catalog files in YAML, several documents to a file, or the JSON that its catalog API answers.

Components, APIs, resources and systems become nodes under their entity reference, `kind:namespace/name`. A component
depends on what `dependsOn` and `consumesApis` name, an API on the component that provides it, a system on what is part
of it. Other kinds are left out and counted.
"""

from __future__ import annotations

from typing import Any

import yaml

from cmbs.errors import InvalidGraph
from cmbs.tee.importers.building import GraphBuilder, Imported, member, objects, text, texts
from cmbs.tee.kernel.lattice import NodeType

SOURCE = "backstage"
_TYPES = {
    "component": NodeType.SERVICE,
    "api": NodeType.SERVICE,
    "system": NodeType.SERVICE,
    "resource": NodeType.DEPENDENCY,
}


def import_backstage(data: bytes, trigger: str) -> Imported:
    """The graph of a software catalog; InvalidGraph names the line of a document that cannot be read."""
    builder = GraphBuilder(SOURCE, trigger)
    known = []
    for entity in _read_entities(data, trigger):
        kind, name = text(entity.get("kind")).lower(), text(member(entity, "metadata", "name"))
        if not kind or not name:
            raise InvalidGraph(f"`{trigger}` is no catalog of Backstage: an entity lacks `kind` or `metadata.name`")
        if kind not in _TYPES:
            builder.left_out[f"entities of kind `{kind}`"] += 1
            continue
        namespace = text(member(entity, "metadata", "namespace")).lower() or "default"
        entity_id = f"{kind}:{namespace}/{name.lower()}"
        label = text(member(entity, "metadata", "title")) or name
        builder.add_node(entity_id, _TYPES[kind], label)
        known.append((entity_id, namespace, member(entity, "spec")))
    for entity_id, namespace, spec in known:
        _connect(entity_id, namespace, spec, builder)
    return builder.build()


def _read_entities(data: bytes, name: str) -> list[dict[str, Any]]:
    try:
        documents = list(yaml.load_all(data, _Loader))
    except yaml.MarkedYAMLError as exc:
        place = "" if exc.problem_mark is None else f"line {exc.problem_mark.line + 1}: "
        raise InvalidGraph(f"`{name}` cannot be read: {place}{exc.problem or exc.context}") from exc
    except (yaml.YAMLError, UnicodeDecodeError) as exc:
        raise InvalidGraph(f"`{name}` cannot be read: {exc}") from exc
    entities = []
    for document in documents:
        # The catalog API answers with a list, or with `items`.
        items = member(document, "items")
        entities += objects(document) or objects(items) or ([document] if isinstance(document, dict) else [])
    return entities


def _connect(entity_id: str, namespace: str, spec: Any, builder: GraphBuilder) -> None:
    for reference in texts(member(spec, "dependsOn")):
        builder.add_dependency(entity_id, _resolve(reference, "component", namespace))
    for reference in texts(member(spec, "dependencyOf")):
        builder.add_dependency(_resolve(reference, "component", namespace), entity_id)
    for reference in texts(member(spec, "consumesApis")):
        builder.add_dependency(entity_id, _resolve(reference, "api", namespace))
    for reference in texts(member(spec, "providesApis")):
        builder.add_dependency(_resolve(reference, "api", namespace), entity_id)
    for field, kind in (("system", "system"), ("subcomponentOf", "component")):
        reference = text(member(spec, field))
        if reference:
            builder.add_dependency(_resolve(reference, kind, namespace), entity_id)


def _resolve(reference: str, kind: str, namespace: str) -> str:
    """The id that an entity reference, `[kind:][namespace/]name`, means in an entity of this namespace."""
    given_kind, colon, rest = reference.rpartition(":")
    given_namespace, slash, name = rest.rpartition("/")
    return f"{(given_kind if colon else kind)}:{(given_namespace if slash else namespace)}/{name}".lower()


class _Loader(yaml.SafeLoader):
    """Plain data. A date in a catalog stays the text that it is."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
