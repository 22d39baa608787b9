"""An idempotency key belongs to the actor that sent it: the same key of another actor is another request."""

from __future__ import annotations

import pytest

from cmbs.belief.kernel.events import Event, Repeat
from cmbs.belief.kernel.replay import verify_session
from cmbs.belief.server import BeliefServer
from cmbs.errors import Conflict
from cmbs.messages import Actor, ActorKind, SessionPolicy
from tests.support.kernel import ONTOLOGY, VALIDATOR, Line

ENTER = [VALIDATOR.enter_obligation(name, 0) for name in ("first", "second")]
OLD = VALIDATOR.declare(ONTOLOGY, ["a", "b"], None, SessionPolicy(), None)


def actor(actor_id: str) -> Actor:
    return Actor(ActorKind.AGENT, actor_id, authenticated=True, key_id="key")


@pytest.mark.req("GATES-KEYS-10")
def test_the_same_key_of_another_actor_is_another_request() -> None:
    line = Line.over("a", "b")
    for who, message in (("ann", ENTER[0]), ("bob", ENTER[1])):
        assert isinstance(line.tell(message, "key", actor=who), Event)
    assert isinstance(line.tell(VALIDATOR.declare_conclusion("a", None), "key"), Event)
    assert line.decide(ENTER[0], "key", actor="ann") == Repeat(1)
    assert line.decide(ENTER[1], "key", actor="bob") == Repeat(2)
    with pytest.raises(Conflict) as caught:
        line.decide(ENTER[1], "key", actor="ann")
    assert caught.value.details["event_id"] == line.session.events.at(1)[0]
    with pytest.raises(Conflict):
        line.decide(ENTER[1], "key")
    assert verify_session(line.session_id, line.log).head == line.session.head


@pytest.mark.req("GATES-KEYS-10")
def test_the_same_key_of_two_actors_declares_two_sessions() -> None:
    server = BeliefServer()

    def declare(who: str | None) -> str:
        return server.declaration(
            ONTOLOGY, ["a"], idempotency_key="key", actor=None if who is None else actor(who)
        ).session_id

    assert len({declare("ann"), declare("bob"), declare(None)}) == 3
    assert declare("ann") == declare("ann")
    assert declare(None) == server.declare_session(ONTOLOGY, ["a"], idempotency_key="key").session_id
