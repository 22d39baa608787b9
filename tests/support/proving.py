"""Sessions and spaces to prove something about, and everything that can be proven of them."""

from __future__ import annotations

from collections.abc import Iterator

from cmbs.audit.history import HistoryOfLog
from cmbs.audit.kernel.documents import Proof
from cmbs.audit.proofs import Prover
from cmbs.belief.kernel.survivors import Universe
from cmbs.belief.server import BeliefServer
from cmbs.errors import Conflict
from cmbs.ledger import to_audit_entry
from cmbs.ledger.event_tree import EventTree
from cmbs.ledger.merkle import root_of_hashes
from cmbs.messages import OntologyBundle
from cmbs.offline_verifier import Known, Tree
from cmbs.spi import AuditLog
from cmbs.stores.memory import InMemoryStore
from cmbs.substrate.belief_source import ServedBelief
from cmbs.substrate.kernel.events import STREAM_PREFIX
from cmbs.testing import ManualClock, SequentialIds
from tests.support.spaces import SPACE, ScriptedRunner, World, call, constraint, http_tool

ONTOLOGY = OntologyBundle("checkout-latency", "3", "graph://checkout", "v17")
# More than two blocks of survivors.
CAUSES = [f"cause-{number:04}" for number in range(2100)]


class ProvenIncident:
    """A session that a restart is gated on: denied once, and allowed once two causes are left."""

    def __init__(self, causes: list[str] | None = None) -> None:
        self.log = InMemoryStore()
        self.causes = sorted(causes or CAUSES)
        self.belief = BeliefServer(store=self.log, clock=ManualClock(), ids=SequentialIds(7))
        self.session_id, _ = self.belief.declare_session(ONTOLOGY, self.causes)
        kept = self.causes[3 : 3 + 2]
        self.belief.enter_obligation(self.session_id, "look", 2)
        self.belief.request_exit(self.session_id, "look")
        self.belief.eliminate(self.session_id, "probe", "first", self.causes[:1])
        rest = [cause for cause in self.causes[1:] if cause not in kept]
        self.belief.eliminate(self.session_id, "probe", "wide", rest[::2])
        self.belief.eliminate(self.session_id, "probe", "rest", rest[1::2])
        few = {"op": "schema", "args": [f"$belief.{self.session_id}.n_survivors", {"maximum": 2}]}
        calm = {"op": "missing", "args": [f"$belief.{self.session_id}.active_obligation_id"]}
        policy = {
            "constraint.restart": constraint(subject={"tool_id": "restart"}, when=few),
            "constraint.stop": constraint(subject={"tool_id": "stop"}, when=calm),
        }
        self.world = World(self.log, belief=ServedBelief(self.belief), runner=ScriptedRunner())
        self.world.open(http_tool("restart"), http_tool("stop"), policy=policy)
        self.world.propose(call("stop", {"service": "checkout"}, key="k1"), proposal_id="p1")
        self.world.propose(call("restart", {"service": "checkout"}, key="k2"), proposal_id="p2")
        self.world.server.wait_for(SPACE, "p2", 30)
        self.world.close()

    @property
    def anchors(self) -> Known:
        """What a reader knows that kept the roots of everything."""
        return anchors_of(self.log, self.session_id, STREAM_PREFIX + SPACE)


def anchors_of(log: AuditLog, session_id: str, *others: str) -> Known:
    """The roots of streams as they are now, and the universe of a session, each computed from the bytes."""
    streams = {name: [tree_of(log, name)] for name in (session_id, *others)}
    universe = Universe(universe_of(log, session_id))
    return Known(trees=streams, universes={session_id: Tree(len(universe), universe.compute_root())})


def tree_of(log: AuditLog, stream_id: str) -> Tree:
    hashes = [entry.event_hash for entry in log.read(stream_id)]
    return Tree(len(hashes), root_of_hashes(hashes))


def history_of(log: AuditLog, session_id: str) -> HistoryOfLog:
    """The past of a session from a log that is taken for what it is."""
    tree = EventTree().extend(log.hashes(session_id))
    return HistoryOfLog(log, session_id, tree, tree.size - 1)


def universe_of(log: AuditLog, session_id: str) -> list[str]:
    ids: list[str] = to_audit_entry(log.read(session_id, limit=1)[0]).payload["hypotheses"]
    return ids


def all_session_proofs(prover: Prover, log: AuditLog, session_id: str) -> Iterator[Proof]:
    """Every proof of every event of a session, and of every hypothesis after it."""
    universe = universe_of(log, session_id)
    for seq in range(len(log.read(session_id))):
        yield prover.inclusion(session_id, seq)
        yield prover.consistency(session_id, seq + 1)
        yield prover.transition(session_id, seq)
        yield prover.transition(session_id, seq, recorded=True)
        for hypothesis_id in universe:
            try:
                yield prover.membership(session_id, hypothesis_id, seq)
            except Conflict:
                yield prover.elimination(session_id, hypothesis_id, seq)
