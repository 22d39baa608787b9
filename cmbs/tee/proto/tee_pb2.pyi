import datetime

from google.protobuf import empty_pb2 as _empty_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class NodeType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NODE_TYPE_UNSPECIFIED: _ClassVar[NodeType]
    NODE_TYPE_SERVICE: _ClassVar[NodeType]
    NODE_TYPE_DEPENDENCY: _ClassVar[NodeType]
    NODE_TYPE_INFRASTRUCTURE: _ClassVar[NodeType]
    NODE_TYPE_MECHANISM: _ClassVar[NodeType]

class EdgeType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EDGE_TYPE_UNSPECIFIED: _ClassVar[EdgeType]
    EDGE_TYPE_DEPENDS_ON: _ClassVar[EdgeType]
    EDGE_TYPE_PROPAGATES_TO: _ClassVar[EdgeType]
    EDGE_TYPE_MANIFESTS_AS: _ClassVar[EdgeType]

class UniverseKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UNIVERSE_KIND_UNSPECIFIED: _ClassVar[UniverseKind]
    UNIVERSE_KIND_NODES: _ClassVar[UniverseKind]
    UNIVERSE_KIND_GRAPH: _ClassVar[UniverseKind]
    UNIVERSE_KIND_LISTED: _ClassVar[UniverseKind]
NODE_TYPE_UNSPECIFIED: NodeType
NODE_TYPE_SERVICE: NodeType
NODE_TYPE_DEPENDENCY: NodeType
NODE_TYPE_INFRASTRUCTURE: NodeType
NODE_TYPE_MECHANISM: NodeType
EDGE_TYPE_UNSPECIFIED: EdgeType
EDGE_TYPE_DEPENDS_ON: EdgeType
EDGE_TYPE_PROPAGATES_TO: EdgeType
EDGE_TYPE_MANIFESTS_AS: EdgeType
UNIVERSE_KIND_UNSPECIFIED: UniverseKind
UNIVERSE_KIND_NODES: UniverseKind
UNIVERSE_KIND_GRAPH: UniverseKind
UNIVERSE_KIND_LISTED: UniverseKind

class Provenance(_message.Message):
    __slots__ = ("source", "timestamp", "trigger")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    TRIGGER_FIELD_NUMBER: _ClassVar[int]
    source: str
    timestamp: _timestamp_pb2.Timestamp
    trigger: str
    def __init__(self, source: _Optional[str] = ..., timestamp: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., trigger: _Optional[str] = ...) -> None: ...

class Node(_message.Message):
    __slots__ = ("id", "type", "label", "hypothetical", "provenance")
    ID_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    HYPOTHETICAL_FIELD_NUMBER: _ClassVar[int]
    PROVENANCE_FIELD_NUMBER: _ClassVar[int]
    id: str
    type: NodeType
    label: str
    hypothetical: bool
    provenance: _containers.RepeatedCompositeFieldContainer[Provenance]
    def __init__(self, id: _Optional[str] = ..., type: _Optional[_Union[NodeType, str]] = ..., label: _Optional[str] = ..., hypothetical: _Optional[bool] = ..., provenance: _Optional[_Iterable[_Union[Provenance, _Mapping]]] = ...) -> None: ...

class Edge(_message.Message):
    __slots__ = ("source", "target", "type", "provenance")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    PROVENANCE_FIELD_NUMBER: _ClassVar[int]
    source: str
    target: str
    type: EdgeType
    provenance: _containers.RepeatedCompositeFieldContainer[Provenance]
    def __init__(self, source: _Optional[str] = ..., target: _Optional[str] = ..., type: _Optional[_Union[EdgeType, str]] = ..., provenance: _Optional[_Iterable[_Union[Provenance, _Mapping]]] = ...) -> None: ...

class CausalGraph(_message.Message):
    __slots__ = ("nodes", "edges", "causal_graph_version")
    NODES_FIELD_NUMBER: _ClassVar[int]
    EDGES_FIELD_NUMBER: _ClassVar[int]
    CAUSAL_GRAPH_VERSION_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[Node]
    edges: _containers.RepeatedCompositeFieldContainer[Edge]
    causal_graph_version: int
    def __init__(self, nodes: _Optional[_Iterable[_Union[Node, _Mapping]]] = ..., edges: _Optional[_Iterable[_Union[Edge, _Mapping]]] = ..., causal_graph_version: _Optional[int] = ...) -> None: ...

class HypothesisDelta(_message.Message):
    __slots__ = ("nodes", "edges")
    NODES_FIELD_NUMBER: _ClassVar[int]
    EDGES_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[Node]
    edges: _containers.RepeatedCompositeFieldContainer[Edge]
    def __init__(self, nodes: _Optional[_Iterable[_Union[Node, _Mapping]]] = ..., edges: _Optional[_Iterable[_Union[Edge, _Mapping]]] = ...) -> None: ...

class HypothesisMergeResult(_message.Message):
    __slots__ = ("created_ids", "merged_ids", "conflicts", "causal_graph_version")
    CREATED_IDS_FIELD_NUMBER: _ClassVar[int]
    MERGED_IDS_FIELD_NUMBER: _ClassVar[int]
    CONFLICTS_FIELD_NUMBER: _ClassVar[int]
    CAUSAL_GRAPH_VERSION_FIELD_NUMBER: _ClassVar[int]
    created_ids: _containers.RepeatedScalarFieldContainer[str]
    merged_ids: _containers.RepeatedScalarFieldContainer[str]
    conflicts: _containers.RepeatedCompositeFieldContainer[MergeConflict]
    causal_graph_version: int
    def __init__(self, created_ids: _Optional[_Iterable[str]] = ..., merged_ids: _Optional[_Iterable[str]] = ..., conflicts: _Optional[_Iterable[_Union[MergeConflict, _Mapping]]] = ..., causal_graph_version: _Optional[int] = ...) -> None: ...

class MergeConflict(_message.Message):
    __slots__ = ("id", "field", "existing_value", "proposed_value")
    ID_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    EXISTING_VALUE_FIELD_NUMBER: _ClassVar[int]
    PROPOSED_VALUE_FIELD_NUMBER: _ClassVar[int]
    id: str
    field: str
    existing_value: str
    proposed_value: str
    def __init__(self, id: _Optional[str] = ..., field: _Optional[str] = ..., existing_value: _Optional[str] = ..., proposed_value: _Optional[str] = ...) -> None: ...

class Universe(_message.Message):
    __slots__ = ("kind", "node_ids", "edge_entries")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NODE_IDS_FIELD_NUMBER: _ClassVar[int]
    EDGE_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    kind: UniverseKind
    node_ids: _containers.RepeatedScalarFieldContainer[str]
    edge_entries: _containers.RepeatedCompositeFieldContainer[EdgeTombstoneEntry]
    def __init__(self, kind: _Optional[_Union[UniverseKind, str]] = ..., node_ids: _Optional[_Iterable[str]] = ..., edge_entries: _Optional[_Iterable[_Union[EdgeTombstoneEntry, _Mapping]]] = ...) -> None: ...

class CreateIncidentRequest(_message.Message):
    __slots__ = ("incident_id", "causal_graph_version", "universe")
    INCIDENT_ID_FIELD_NUMBER: _ClassVar[int]
    CAUSAL_GRAPH_VERSION_FIELD_NUMBER: _ClassVar[int]
    UNIVERSE_FIELD_NUMBER: _ClassVar[int]
    incident_id: str
    causal_graph_version: int
    universe: Universe
    def __init__(self, incident_id: _Optional[str] = ..., causal_graph_version: _Optional[int] = ..., universe: _Optional[_Union[Universe, _Mapping]] = ...) -> None: ...

class GraphAtRequest(_message.Message):
    __slots__ = ("causal_graph_version", "nodes_only")
    CAUSAL_GRAPH_VERSION_FIELD_NUMBER: _ClassVar[int]
    NODES_ONLY_FIELD_NUMBER: _ClassVar[int]
    causal_graph_version: int
    nodes_only: bool
    def __init__(self, causal_graph_version: _Optional[int] = ..., nodes_only: _Optional[bool] = ...) -> None: ...

class CreateIncidentResult(_message.Message):
    __slots__ = ("incident_id", "created", "causal_graph_version", "unknown_ids", "universe")
    INCIDENT_ID_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    CAUSAL_GRAPH_VERSION_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_IDS_FIELD_NUMBER: _ClassVar[int]
    UNIVERSE_FIELD_NUMBER: _ClassVar[int]
    incident_id: str
    created: bool
    causal_graph_version: int
    unknown_ids: _containers.RepeatedScalarFieldContainer[str]
    universe: UniverseKind
    def __init__(self, incident_id: _Optional[str] = ..., created: _Optional[bool] = ..., causal_graph_version: _Optional[int] = ..., unknown_ids: _Optional[_Iterable[str]] = ..., universe: _Optional[_Union[UniverseKind, str]] = ...) -> None: ...

class IncidentContextRequest(_message.Message):
    __slots__ = ("incident_id", "without_tombstones")
    INCIDENT_ID_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_TOMBSTONES_FIELD_NUMBER: _ClassVar[int]
    incident_id: str
    without_tombstones: bool
    def __init__(self, incident_id: _Optional[str] = ..., without_tombstones: _Optional[bool] = ...) -> None: ...

class IncidentContext(_message.Message):
    __slots__ = ("incident_id", "created_at", "tombstones", "causal_graph_version", "universe")
    INCIDENT_ID_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    TOMBSTONES_FIELD_NUMBER: _ClassVar[int]
    CAUSAL_GRAPH_VERSION_FIELD_NUMBER: _ClassVar[int]
    UNIVERSE_FIELD_NUMBER: _ClassVar[int]
    incident_id: str
    created_at: _timestamp_pb2.Timestamp
    tombstones: TombstoneSet
    causal_graph_version: int
    universe: UniverseKind
    def __init__(self, incident_id: _Optional[str] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., tombstones: _Optional[_Union[TombstoneSet, _Mapping]] = ..., causal_graph_version: _Optional[int] = ..., universe: _Optional[_Union[UniverseKind, str]] = ...) -> None: ...

class NodeTombstoneRequest(_message.Message):
    __slots__ = ("incident_id", "node_ids", "provenance")
    INCIDENT_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_IDS_FIELD_NUMBER: _ClassVar[int]
    PROVENANCE_FIELD_NUMBER: _ClassVar[int]
    incident_id: str
    node_ids: _containers.RepeatedScalarFieldContainer[str]
    provenance: Provenance
    def __init__(self, incident_id: _Optional[str] = ..., node_ids: _Optional[_Iterable[str]] = ..., provenance: _Optional[_Union[Provenance, _Mapping]] = ...) -> None: ...

class EdgeTombstoneEntry(_message.Message):
    __slots__ = ("source", "target", "type")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    source: str
    target: str
    type: EdgeType
    def __init__(self, source: _Optional[str] = ..., target: _Optional[str] = ..., type: _Optional[_Union[EdgeType, str]] = ...) -> None: ...

class EdgeTombstoneRequest(_message.Message):
    __slots__ = ("incident_id", "entries", "provenance")
    INCIDENT_ID_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    PROVENANCE_FIELD_NUMBER: _ClassVar[int]
    incident_id: str
    entries: _containers.RepeatedCompositeFieldContainer[EdgeTombstoneEntry]
    provenance: Provenance
    def __init__(self, incident_id: _Optional[str] = ..., entries: _Optional[_Iterable[_Union[EdgeTombstoneEntry, _Mapping]]] = ..., provenance: _Optional[_Union[Provenance, _Mapping]] = ...) -> None: ...

class TombstoneMergeResult(_message.Message):
    __slots__ = ("applied_ids", "already_tombstoned_ids", "unmatched_ids", "total")
    APPLIED_IDS_FIELD_NUMBER: _ClassVar[int]
    ALREADY_TOMBSTONED_IDS_FIELD_NUMBER: _ClassVar[int]
    UNMATCHED_IDS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    applied_ids: _containers.RepeatedScalarFieldContainer[str]
    already_tombstoned_ids: _containers.RepeatedScalarFieldContainer[str]
    unmatched_ids: _containers.RepeatedScalarFieldContainer[str]
    total: int
    def __init__(self, applied_ids: _Optional[_Iterable[str]] = ..., already_tombstoned_ids: _Optional[_Iterable[str]] = ..., unmatched_ids: _Optional[_Iterable[str]] = ..., total: _Optional[int] = ...) -> None: ...

class LiveViewRequest(_message.Message):
    __slots__ = ("incident_id", "nodes_only")
    INCIDENT_ID_FIELD_NUMBER: _ClassVar[int]
    NODES_ONLY_FIELD_NUMBER: _ClassVar[int]
    incident_id: str
    nodes_only: bool
    def __init__(self, incident_id: _Optional[str] = ..., nodes_only: _Optional[bool] = ...) -> None: ...

class TombstoneRequest(_message.Message):
    __slots__ = ("incident_id",)
    INCIDENT_ID_FIELD_NUMBER: _ClassVar[int]
    incident_id: str
    def __init__(self, incident_id: _Optional[str] = ...) -> None: ...

class TombstoneSet(_message.Message):
    __slots__ = ("node_ids", "edge_entries")
    NODE_IDS_FIELD_NUMBER: _ClassVar[int]
    EDGE_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    node_ids: _containers.RepeatedScalarFieldContainer[str]
    edge_entries: _containers.RepeatedCompositeFieldContainer[EdgeTombstoneEntry]
    def __init__(self, node_ids: _Optional[_Iterable[str]] = ..., edge_entries: _Optional[_Iterable[_Union[EdgeTombstoneEntry, _Mapping]]] = ...) -> None: ...

class ExplainRequest(_message.Message):
    __slots__ = ("incident_id", "symptoms", "max_depth", "page_size", "page_token")
    INCIDENT_ID_FIELD_NUMBER: _ClassVar[int]
    SYMPTOMS_FIELD_NUMBER: _ClassVar[int]
    MAX_DEPTH_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    incident_id: str
    symptoms: _containers.RepeatedScalarFieldContainer[str]
    max_depth: int
    page_size: int
    page_token: str
    def __init__(self, incident_id: _Optional[str] = ..., symptoms: _Optional[_Iterable[str]] = ..., max_depth: _Optional[int] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class CausalPath(_message.Message):
    __slots__ = ("end", "edges")
    END_FIELD_NUMBER: _ClassVar[int]
    EDGES_FIELD_NUMBER: _ClassVar[int]
    end: str
    edges: _containers.RepeatedCompositeFieldContainer[EdgeTombstoneEntry]
    def __init__(self, end: _Optional[str] = ..., edges: _Optional[_Iterable[_Union[EdgeTombstoneEntry, _Mapping]]] = ...) -> None: ...

class Explanation(_message.Message):
    __slots__ = ("node", "paths")
    NODE_FIELD_NUMBER: _ClassVar[int]
    PATHS_FIELD_NUMBER: _ClassVar[int]
    node: Node
    paths: _containers.RepeatedCompositeFieldContainer[CausalPath]
    def __init__(self, node: _Optional[_Union[Node, _Mapping]] = ..., paths: _Optional[_Iterable[_Union[CausalPath, _Mapping]]] = ...) -> None: ...

class ExplainResult(_message.Message):
    __slots__ = ("explanations", "next_page_token", "cut", "total", "causal_graph_version")
    EXPLANATIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    CUT_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    CAUSAL_GRAPH_VERSION_FIELD_NUMBER: _ClassVar[int]
    explanations: _containers.RepeatedCompositeFieldContainer[Explanation]
    next_page_token: str
    cut: bool
    total: int
    causal_graph_version: int
    def __init__(self, explanations: _Optional[_Iterable[_Union[Explanation, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., cut: _Optional[bool] = ..., total: _Optional[int] = ..., causal_graph_version: _Optional[int] = ...) -> None: ...

class ImpactRequest(_message.Message):
    __slots__ = ("incident_id", "node_id", "max_depth", "page_size", "page_token")
    INCIDENT_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    MAX_DEPTH_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    incident_id: str
    node_id: str
    max_depth: int
    page_size: int
    page_token: str
    def __init__(self, incident_id: _Optional[str] = ..., node_id: _Optional[str] = ..., max_depth: _Optional[int] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class Reached(_message.Message):
    __slots__ = ("node", "path")
    NODE_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    node: Node
    path: CausalPath
    def __init__(self, node: _Optional[_Union[Node, _Mapping]] = ..., path: _Optional[_Union[CausalPath, _Mapping]] = ...) -> None: ...

class ImpactResult(_message.Message):
    __slots__ = ("reached", "next_page_token", "cut", "total", "causal_graph_version")
    REACHED_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    CUT_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    CAUSAL_GRAPH_VERSION_FIELD_NUMBER: _ClassVar[int]
    reached: _containers.RepeatedCompositeFieldContainer[Reached]
    next_page_token: str
    cut: bool
    total: int
    causal_graph_version: int
    def __init__(self, reached: _Optional[_Iterable[_Union[Reached, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., cut: _Optional[bool] = ..., total: _Optional[int] = ..., causal_graph_version: _Optional[int] = ...) -> None: ...

class ListGraphRequest(_message.Message):
    __slots__ = ("incident_id", "page_size", "page_token")
    INCIDENT_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    incident_id: str
    page_size: int
    page_token: str
    def __init__(self, incident_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class GraphPage(_message.Message):
    __slots__ = ("nodes", "edges", "next_page_token", "causal_graph_version")
    NODES_FIELD_NUMBER: _ClassVar[int]
    EDGES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    CAUSAL_GRAPH_VERSION_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[Node]
    edges: _containers.RepeatedCompositeFieldContainer[EdgeTombstoneEntry]
    next_page_token: str
    causal_graph_version: int
    def __init__(self, nodes: _Optional[_Iterable[_Union[Node, _Mapping]]] = ..., edges: _Optional[_Iterable[_Union[EdgeTombstoneEntry, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., causal_graph_version: _Optional[int] = ...) -> None: ...

class TeeIdentity(_message.Message):
    __slots__ = ("tee_id", "stands_in_for")
    TEE_ID_FIELD_NUMBER: _ClassVar[int]
    STANDS_IN_FOR_FIELD_NUMBER: _ClassVar[int]
    tee_id: str
    stands_in_for: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, tee_id: _Optional[str] = ..., stands_in_for: _Optional[_Iterable[str]] = ...) -> None: ...

class StandInRequest(_message.Message):
    __slots__ = ("tee_ids",)
    TEE_IDS_FIELD_NUMBER: _ClassVar[int]
    tee_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, tee_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class TombstoneGroup(_message.Message):
    __slots__ = ("provenance", "tombstones")
    PROVENANCE_FIELD_NUMBER: _ClassVar[int]
    TOMBSTONES_FIELD_NUMBER: _ClassVar[int]
    provenance: Provenance
    tombstones: TombstoneSet
    def __init__(self, provenance: _Optional[_Union[Provenance, _Mapping]] = ..., tombstones: _Optional[_Union[TombstoneSet, _Mapping]] = ...) -> None: ...
