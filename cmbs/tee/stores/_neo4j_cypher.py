"""The statements of the graph in Neo4j; `cmbs.tee.stores.neo4j` says what is kept and why."""

from __future__ import annotations

from cmbs.tee.kernel.lattice import EdgeType

EDGES = "|".join(each.name for each in EdgeType)
UNIQUE = {
    "tee_graph": "(x:TeeGraph) REQUIRE x.id",
    "tee_node": "(x:TeeNode) REQUIRE x.id",
    "tee_incident": "(x:TeeIncident) REQUIRE x.id",
    "tee_tombstone": "(x:TeeTombstone) REQUIRE (x.incident, x.id)",
    "tee_edge_tombstone": "(x:TeeEdgeTombstone) REQUIRE (x.incident, x.source, x.target, x.type)",
    "tee_provenance": "(x:TeeProvenance) REQUIRE (x.of, x.key)",
    "tee_version": "(x:TeeVersion) REQUIRE x.version",
    "tee_universe": "(x:TeeUniverse) REQUIRE (x.incident, x.part)",
}
_CONTENT = [what.partition(" ")[0] for name, what in UNIQUE.items() if name != "tee_graph"]
HAS_CONTENT = f"RETURN {' + '.join(f'COUNT {{ MATCH {pattern} }}' for pattern in _CONTENT)} > 0"
CONSTRAINTS = [f"CREATE CONSTRAINT {name} IF NOT EXISTS FOR {what} IS UNIQUE" for name, what in UNIQUE.items()]
CREATE_GRAPH = """
MERGE (g:TeeGraph {id: 0})
ON CREATE SET g.version = 0, g.format = $format, g.fingerprint = $fingerprint, g.tee_id = $tee_id, g.stands_in_for = []
"""
MARKS = "MATCH (g:TeeGraph {id: 0}) RETURN collect([coalesce(g.format, 0), g.fingerprint])"

# Setting a property takes the lock of its node; the value stays, so nothing is written. Only what is read after that
# is sure to be the newest, which is why the counters are never set from a value that was read in the same breath.
LOCK_GRAPH = "MATCH (g:TeeGraph {id: 0}) SET g.locked = true WITH g"
LOCK_INCIDENT = "MATCH (i:TeeIncident {id: $incident}) SET i.locked = true WITH i"

# The planner goes by statistics, which may be those of an almost empty graph, and keeps a plan as the graph grows. It
# may then read all nodes, or all edges of a node that everything depends on, once for each row. So a node is named with
# its index, and an edge only once both its ends are found. `MERGE` takes no hint, and needs none: it always seeks.
_NODE = "MATCH (n:TeeNode {id: %s}) USING INDEX SEEK n:TeeNode(id)"
_ENDS = """
MATCH (s:TeeNode {id: edge[0]}) USING INDEX SEEK s:TeeNode(id)
MATCH (t:TeeNode {id: edge[1]}) USING INDEX SEEK t:TeeNode(id)
"""
_EDGE = f"{_ENDS} CALL (s, t, edge) {{ MATCH (s)-[r:{EDGES}]->(t) WHERE type(r) = edge[2] RETURN r }}"

VERSION = f"{LOCK_GRAPH} RETURN g.version"
IDENTITY = f"{LOCK_GRAPH} RETURN g.tee_id, g.stands_in_for"
STAND_IN = "MATCH (g:TeeGraph {id: 0}) SET g.stands_in_for = g.stands_in_for + $tee_ids"
KNOWN_NODES = f"UNWIND $ids AS id {_NODE % 'id'} RETURN collect(n.wire)"
KNOWN_EDGES = f"UNWIND $edges AS edge {_EDGE} RETURN collect(r.wire)"
GROW = "MATCH (g:TeeGraph {id: 0}) SET g.version = $version"
CREATE_NODES = """
UNWIND $rows AS row MERGE (n:TeeNode {id: row[0]})
SET n:%s, n.born = $version, n.wire = row[1], n.type = $type, n.label = row[2], n.hypothetical = row[3],
  n.sources = row[4]
"""
MAKE_CERTAIN = f"UNWIND $rows AS row {_NODE % 'row[0]'} SET n.wire = row[1], n.hypothetical = false"
# Which of the proposed provenance is known, and what of each thing is known beside it.
KNOWN_PROVENANCE = """
UNWIND $keys AS key MATCH (p:TeeProvenance {of: key[0], key: key[1]}) USING INDEX SEEK p:TeeProvenance(of, key)
RETURN collect(key)
"""
ADD_PROVENANCE = """
UNWIND $rows AS row CREATE (:TeeProvenance {of: row[0], key: row[1], kind: $kind, source: row[2], trigger: row[3],
  said_at: datetime({epochSeconds: row[4], nanosecond: row[5]}), wire: row[6], version: $version, place: row[7]})
"""
# A list without a bound would be written anew with every merge. TeeProvenance has what is left out.
ADD_NODE_SOURCES = f"""
UNWIND $rows AS row {_NODE % "row[0]"}
WITH n, row[1] AS said, coalesce(n.sources, []) AS known WHERE size(known) < $most
SET n.sources = (known + [each IN said WHERE NOT each IN known])[..$most]
"""
ADD_EDGE_SOURCES = f"""
UNWIND $rows AS edge {_ENDS} CALL (s, t) {{ MATCH (s)-[r:%s]->(t) RETURN r }}
WITH r, edge[2] AS said, coalesce(r.sources, []) AS known WHERE size(known) < $most
SET r.sources = (known + [each IN said WHERE NOT each IN known])[..$most]
"""
# What was said after the birth of the things of a view; most things have none.
LATER_PROVENANCE = """
MATCH (p:TeeProvenance) WHERE p.kind = $kind WITH p ORDER BY p.version, p.place
RETURN collect([p.of, p.wire])
"""
PUT_ENDS = "UNWIND $ids AS id MERGE (:TeeNode {id: id})"
CREATE_EDGES = f"""
UNWIND $rows AS edge {_ENDS} CREATE (s)-[:%s {{born: $version, wire: edge[2], sources: edge[3]}}]->(t)
"""

CREATE_INCIDENT = """
MERGE (i:TeeIncident {id: $incident})
ON CREATE SET i.locked = true, i.created_by = $call, i.anchor = $anchor, i.tombstones = 0, i.seconds = $seconds,
  i.nanos = $nanos, i.created_at = datetime({epochSeconds: $seconds, nanosecond: $nanos}), i.universe = $universe
MERGE (v:TeeVersion {version: i.anchor}) MERGE (i)-[:ANCHORED_AT]->(v)
RETURN i.seconds, i.nanos, i.anchor, i.universe, i.created_by = $call
"""
INCIDENT = f"{LOCK_INCIDENT} RETURN i.seconds, i.nanos, i.anchor, i.universe"
PUT_UNIVERSE = "UNWIND $rows AS row CREATE (:TeeUniverse {incident: $incident, part: row[0], wire: row[1]})"
UNIVERSE = f"""
{LOCK_INCIDENT} RETURN i.universe,
COLLECT {{ MATCH (u:TeeUniverse {{incident: $incident}}) WHERE u.part IS NOT NULL RETURN u.wire }}
"""
NODE_TOMBSTONED = f"""
{LOCK_INCIDENT} RETURN i.tombstones,
COLLECT {{ UNWIND $keys AS key {_NODE % "key[0]"} WHERE n.born <= i.anchor RETURN key }},
COLLECT {{ UNWIND $keys AS key
  MATCH (d:TeeTombstone {{incident: $incident, id: key[0]}}) USING INDEX SEEK d:TeeTombstone(incident, id) RETURN key }}
"""
EDGE_TOMBSTONED = f"""
{LOCK_INCIDENT} RETURN i.tombstones,
COLLECT {{ UNWIND $keys AS edge {_EDGE} WITH r, edge WHERE r.born <= i.anchor RETURN edge }},
COLLECT {{ UNWIND $keys AS key
  MATCH (d:TeeEdgeTombstone {{incident: $incident, source: key[0], target: key[1], type: key[2]}})
  USING INDEX SEEK d:TeeEdgeTombstone(incident, source, target, type) RETURN key }}
"""
SAID = "t.provenance_source = $source, t.provenance_trigger = $trigger, t.seconds = $seconds, t.nanos = $nanos"
PUT_NODE_TOMBSTONES = f"""
UNWIND $rows AS row CREATE (t:TeeTombstone {{incident: $incident, id: row[0]}}) SET t.full_id = row[1], {SAID}
"""
# For people: only what the incident sees, and so can rule out.
POINT_AT_NODES = f"""
MATCH (i:TeeIncident {{id: $incident}}) UNWIND $rows AS row {_NODE % "row[0]"} WHERE n.born <= i.anchor
MERGE (i)-[r:RULED_OUT]->(n) SET r.provenance_source = $source, r.provenance_trigger = $trigger,
  r.said_at = datetime({{epochSeconds: $seconds, nanosecond: $nanos}})
"""
PUT_EDGE_TOMBSTONES = f"""
UNWIND $rows AS row
CREATE (t:TeeEdgeTombstone {{incident: $incident, source: row[0], target: row[1], type: row[2]}})
SET t.full_source = row[3], t.full_target = row[4], {SAID}
"""
COUNT = "MATCH (i:TeeIncident {id: $incident}) SET i.tombstones = i.tombstones + $new"
SAYS = "t.provenance_source, t.provenance_trigger, t.seconds, t.nanos"
TOMBSTONES = f"""
{LOCK_INCIDENT} RETURN
COLLECT {{ MATCH (t:TeeTombstone {{incident: $incident}}) WHERE t.id IS NOT NULL
  RETURN [coalesce(t.full_id, t.id), {SAYS}] }},
COLLECT {{ MATCH (t:TeeEdgeTombstone {{incident: $incident}})
  WHERE t.source IS NOT NULL AND t.target IS NOT NULL AND t.type IS NOT NULL
  RETURN [coalesce(t.full_source, t.source), coalesce(t.full_target, t.target), t.type, {SAYS}] }}
"""

MOMENT = f"""
{LOCK_GRAPH} OPTIONAL MATCH (i:TeeIncident {{id: $incident}}) SET i.locked = true
WITH g, i RETURN g.version, i.tombstones, i.anchor
"""
NODES = "MATCH (n:TeeNode) WHERE n.born <= $version RETURN collect(n.id), collect(n.wire)"
RELATIONS = f"MATCH ()-[r:{EDGES}]->() WHERE r.born <= $version RETURN collect(r.wire)"
DEAD_NODES = """
MATCH (t:TeeTombstone {incident: $incident}) WHERE t.id IS NOT NULL RETURN collect(t.id)
"""
DEAD_RELATIONS = f"""
MATCH (t:TeeTombstone {{incident: $incident}}) WHERE t.id IS NOT NULL
{_NODE % "t.id"} MATCH (n)-[r:{EDGES}]-() RETURN collect(r.wire)
"""
TOMBSTONED_RELATIONS = f"""
MATCH (d:TeeEdgeTombstone {{incident: $incident}})
WHERE d.source IS NOT NULL AND d.target IS NOT NULL AND d.type IS NOT NULL
WITH [d.source, d.target, d.type] AS edge {_EDGE} RETURN collect(r.wire)
"""
BORN = f"UNWIND $ids AS id {_NODE % 'id'} WHERE n.born <= $version RETURN collect(id)"
BORN_EDGES = f"UNWIND $edges AS edge {_EDGE} WITH r, edge WHERE r.born <= $version RETURN collect(edge)"
NODES_AT = f"UNWIND $ids AS id {_NODE % 'id'} WHERE n.born <= $version RETURN collect(n.wire)"
# Both in the order of an index, so that a page costs what is on it. Neo4j sorts texts in another order than its index
# and `>` have, so no plan may sort the ids that a page begins at: the hint makes the index give them in order, and the
# edges of each source are sorted in a subquery. An edge is found again by its source and its place among its edges.
NODE_PAGE = """
MATCH (n:TeeNode) USING INDEX n:TeeNode(id) WHERE n.id > $after AND n.born <= $version
WITH n ORDER BY n.id LIMIT $limit RETURN collect(n.id), collect(n.wire)
"""
EDGE_PAGE = f"""
MATCH (s:TeeNode) USING INDEX s:TeeNode(id) WHERE s.id >= $source WITH s ORDER BY s.id
CALL (s) {{ MATCH (s)-[r:{EDGES}]->(t) WHERE r.born <= $version RETURN r ORDER BY t.id, type(r) }}
WITH s, r SKIP $skip LIMIT $limit RETURN collect(s.id), collect(r.wire)
"""
# Each direction by itself, from the indexed end on; an edge between two of them is found twice.
EDGES_AT = f"""
RETURN
COLLECT {{ UNWIND $ids AS id {_NODE % "id"} MATCH (n)-[r:{EDGES}]->() WHERE r.born <= $version RETURN r.wire }},
COLLECT {{ UNWIND $ids AS id {_NODE % "id"} MATCH (n)<-[r:{EDGES}]-() WHERE r.born <= $version RETURN r.wire }}
"""

# What the fingerprint of a graph covers: the properties that these write are its tables.
WRITES = [
    *(*CONSTRAINTS, CREATE_GRAPH, STAND_IN, GROW),
    *(CREATE_NODES, MAKE_CERTAIN, ADD_PROVENANCE, ADD_NODE_SOURCES, ADD_EDGE_SOURCES, PUT_ENDS, CREATE_EDGES),
    *(CREATE_INCIDENT, PUT_UNIVERSE, PUT_NODE_TOMBSTONES, POINT_AT_NODES, PUT_EDGE_TOMBSTONES, COUNT),
]
