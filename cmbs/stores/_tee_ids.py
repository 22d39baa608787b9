"""What a hypothesis id means to Tee, and back. To the rest of cmbs these ids are opaque.

=============================  ===========================================================================
`edge:source|target|TYPE`      that edge; inside source and target, `%` is written `%25` and `|` is `%7C`
`node:` and what names an edge the node with that rest as its id
anything else                  the node with that id
=============================  ==========================================================================

So every text names one thing, and everything has one name: a node that is called like an edge, `edge:a|b|DEPENDS_ON`,
is the hypothesis `node:edge:a|b|DEPENDS_ON`, and so on with every further `node:`. Text that only looks like an edge
(an unknown type, a bare `%`, an edge from a node to itself) names a node.
"""

from __future__ import annotations

import re

from cmbs.tee import EdgeKey, EdgeType, edge_id

_END = r"((?:[^|%]|%25|%7C)+)"
_EDGE = re.compile(rf"edge:{_END}\|{_END}\|({'|'.join(each.name for each in EdgeType)})", re.DOTALL)
_NODE = "node:"
_NODES = re.compile(r"\A(?:node:)+")


def hypothesis_of(thing: str | EdgeKey) -> str:
    """The hypothesis that a node id or an edge is."""
    if isinstance(thing, EdgeKey):
        return edge_id(thing)
    return f"{_NODE}{thing}" if _reads_as_an_edge(thing) else thing


def parse_hypothesis(hypothesis_id: str) -> str | EdgeKey:
    """The node id or the edge that a hypothesis is."""
    edge = _edge(hypothesis_id)
    if edge is not None:
        return edge
    return hypothesis_id.removeprefix(_NODE) if _reads_as_an_edge(hypothesis_id) else hypothesis_id


def _reads_as_an_edge(text: str) -> bool:
    """Whether it names an edge, after any number of `node:`."""
    return _edge(_NODES.sub("", text, count=1)) is not None


def _edge(text: str) -> EdgeKey | None:
    match = _EDGE.fullmatch(text) if text.startswith("edge:") else None
    if match is None or match[1] == match[2]:
        return None
    return EdgeKey(_unescape(match[1]), _unescape(match[2]), EdgeType[match[3]])


def _unescape(end: str) -> str:
    return end.replace("%7C", "|").replace("%25", "%")
