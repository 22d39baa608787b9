"""Capability tokens: what one is good for, and why a child is never good for more than its parent."""

from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from immutables import Map

from cmbs.messages import Actor, ActorKind
from cmbs.substrate.kernel.arbitration.arbitrate import arbitrate
from cmbs.substrate.kernel.arbitration.capabilities import (
    MAX_LINE,
    MAX_NAMES,
    MAX_SCOPES,
    MAX_TEXT_CHARACTERS,
    MAX_TOOL_IDS,
    NO_TOKEN,
    IssueRefusal,
    in_scope,
    issue_refusal,
    token_line,
    use_fault,
    wider_than,
)
from cmbs.substrate.kernel.model import Budget, Capability, ReasonCode, Scope, ScopeMatch, Spent, Verdict
from cmbs.testing.spaces import AGENT, EARLIER, LATER, NOW, call, payload, proposal, space, token, tool
from cmbs.testing.strategies.substrate import calls, constraints, readings, scopes, states, tokens
from tests.support.subtests import for_each

OPERATOR = Actor(ActorKind.OPERATOR, "op")
OTHER = Actor(ActorKind.AGENT, "agent-2")
UNDER_DATA = Scope("path", ScopeMatch.PREFIX, "/data/")


def child(parent: Capability, **fields: Any) -> Capability:
    return msgspec.structs.replace(parent, **({"token_id": "child", "parent_id": parent.token_id} | fields))


def fault(*line: Capability, actor: Actor = AGENT, args: Any = None, **fields: Any) -> ReasonCode | None:
    """What speaks against using the last token of a line for `fs.write`."""
    kept = space(tokens=line, **fields)
    return use_fault(kept, token_line(kept.capabilities, line[-1].token_id), actor, "fs.write", args or {}, NOW)


@for_each(
    ("fields", "reason"),
    [
        ({}, None),
        ({"agent_id": "agent-2"}, ReasonCode.CAPABILITY_OTHER_AGENT),
        ({"expires_at": LATER}, None),
        ({"expires_at": NOW}, ReasonCode.CAPABILITY_EXPIRED),
        ({"expires_at": EARLIER}, ReasonCode.CAPABILITY_EXPIRED),
        ({"tool_ids": ["email.send"]}, ReasonCode.CAPABILITY_TOOL),
        ({"scopes": [UNDER_DATA]}, ReasonCode.CAPABILITY_SCOPE),
    ],
)
def test_each_condition_of_a_token_has_its_reason(fields: dict[str, Any], reason: ReasonCode | None) -> None:
    assert fault(token(**fields)) == reason


def test_every_scope_of_a_token_has_to_hold() -> None:
    both = token(scopes=[UNDER_DATA, Scope("mode", ScopeMatch.EXACT, "r")])
    assert fault(both, args={"path": "/data/x", "mode": "r"}) is None
    assert fault(both, args={"path": "/data/x", "mode": "w"}) == ReasonCode.CAPABILITY_SCOPE
    assert fault(both, args={"path": "/etc", "mode": "r"}) == ReasonCode.CAPABILITY_SCOPE


@for_each("kind", [kind for kind in ActorKind if kind is not ActorKind.AGENT])
def test_only_an_agent_holds_a_token_whatever_others_are_called(kind: ActorKind) -> None:
    assert fault(token(), actor=Actor(kind, AGENT.id)) == ReasonCode.CAPABILITY_OTHER_AGENT


def test_a_revoked_token_takes_those_under_it_with_it() -> None:
    root = token()
    revoked = Map({"token-1": 3})
    assert fault(root, revoked=revoked) == ReasonCode.CAPABILITY_REVOKED
    assert fault(root, child(root), revoked=revoked) == ReasonCode.CAPABILITY_REVOKED
    assert fault(root, child(root)) is None


def test_what_is_wrong_with_any_token_of_the_line_counts_in_the_order_of_the_reasons() -> None:
    root = token(expires_at=EARLIER)
    below = child(root, expires_at=None, tool_ids=["email.send"])
    assert fault(root, below) == ReasonCode.CAPABILITY_EXPIRED
    assert fault(token(scopes=[UNDER_DATA]), child(token(), scopes=[])) == ReasonCode.CAPABILITY_SCOPE


def test_a_token_that_is_not_there_or_hangs_in_the_air_is_not_held() -> None:
    root = token()
    orphan = child(root, parent_id="none")
    loop = child(root, token_id="loop", parent_id="loop")
    known = Map({each.token_id: each for each in (root, orphan, loop)})
    assert token_line(known, None) is NO_TOKEN
    assert token_line(known, "none") is NO_TOKEN
    assert token_line(known, "child") is NO_TOKEN
    assert token_line(known, "loop") is NO_TOKEN
    assert use_fault(space(), NO_TOKEN, AGENT, "fs.write", {}, NOW) == ReasonCode.CAPABILITY_UNKNOWN


def test_a_child_is_permitted_by_its_own_names_and_denied_by_those_of_its_whole_line() -> None:
    root = token(capabilities=["prod", "net"])
    below = child(root, capabilities=["net"])
    holding = token_line(Map({"token-1": root, "child": below}), "child")
    assert (holding.permitting, holding.denying) == (("net",), ("net", "prod"))


@for_each(
    ("scope", "args", "within"),
    [
        (UNDER_DATA, {"path": "/data/x"}, True),
        (UNDER_DATA, {"path": "/data"}, False),
        (UNDER_DATA, {"path": "/data/../etc/passwd"}, False),
        (UNDER_DATA, {"path": "/data/a/.."}, False),
        (UNDER_DATA, {"path": "/data/..\\x"}, False),
        (UNDER_DATA, {"path": "/data/v1..v2"}, True),
        (UNDER_DATA, {"path": "/data/a..b/.../c"}, True),
        (UNDER_DATA, {"path": "/data/100%25"}, True),
        (UNDER_DATA, {"path": "/data/100%"}, True),
        (UNDER_DATA, {"path": "/data/stra%C3%9Fe.txt"}, True),
        (UNDER_DATA, {"path": "/data/\uff0ehidden"}, True),
        (UNDER_DATA, {"path": "/data/a b;c=d/e"}, True),
        *(
            (UNDER_DATA, {"path": f"/data/{climbing}"}, False)
            for climbing in (
                *("%2e%2E/etc", ".%2e/etc", "x%2f..%2Fetc", "a%5c..", "..;a=b/etc", ".."),
                # Escaped on top of itself, as often as is decoded, and more often.
                *("%252e%252e/etc", "x%25252f..", ("%" + "25" * 20 + "2e") * 2),
                # Other characters that are taken for dots and slashes.
                *("\uff0e\uff0e/etc", "\u2025/etc", "\u2024\u2024", "%ef%bc%8e%ef%bc%8e", "x\uff0f..\uff0fetc"),
                # What ends a text for some, or is taken off.
                *("..%00", "..\0", "x\0.txt", "x%00", ".. /etc", "..\t", ".\u200b./etc", "..%20/etc"),
                # What only some decode.
                *("%c0%ae%c0%ae/etc", "%u002e%u002e/etc"),
            )
        ),
        (UNDER_DATA, {"path": ["/data/x"]}, False),
        (UNDER_DATA, {}, False),
        (UNDER_DATA, [], False),
        (Scope("a.b", ScopeMatch.EXACT, 1), {"a": {"b": 1}}, True),
        (Scope("a.b", ScopeMatch.EXACT, 1), {"a": {"b": True}}, False),
        (Scope("a.b", ScopeMatch.EXACT, 1), {"a.b": 1}, False),
        (Scope("a.0", ScopeMatch.EXACT, "x"), {"a": ["x"]}, True),
        (Scope("a", ScopeMatch.EXACT, True), {"a": True}, True),
        (Scope("a", ScopeMatch.PREFIX, 1), {"a": "1"}, False),
    ],
)
def test_a_scope_bounds_one_argument(scope: Scope, args: Any, within: bool) -> None:
    assert in_scope(scope, args) is within


@for_each(
    ("budget", "spent", "verdict"),
    [
        (Budget(calls=1), Spent(), Verdict.ALLOW),
        (Budget(calls=1), Spent(calls=1), Verdict.DENY),
        (Budget(bytes=11), Spent(), Verdict.ALLOW),
        (Budget(bytes=11), Spent(bytes=1), Verdict.DENY),
        (Budget(wall_ms=5), Spent(wall_ms=4), Verdict.ALLOW),
        (Budget(wall_ms=5), Spent(wall_ms=5), Verdict.DENY),
        (Budget(calls=0), Spent(), Verdict.DENY),
    ],
)
@for_each("of_parent", [False, True])
def test_a_budget_is_enough_for_the_call_or_the_call_is_denied(
    budget: Budget, spent: Spent, verdict: Verdict, of_parent: bool
) -> None:
    root = token("root", budget=budget)
    line = (root, child(root, token_id="token-1", budget=Budget())) if of_parent else (token(budget=budget),)
    kept = space({"constraint.a": payload()}, tools=(tool(),), tokens=line, spent=Map({line[0].token_id: spent}))
    decision = arbitrate(kept, proposal(call(args={"a": "xyz"})), AGENT, NOW, {}).decision
    assert decision.verdict == verdict
    assert (decision.reason_code == ReasonCode.BUDGET_EXHAUSTED) is (verdict is Verdict.DENY)


def test_calls_of_one_proposal_share_what_is_left_and_fail_together() -> None:
    kept = space({"constraint.a": payload()}, tools=(tool(),), tokens=(token(budget=Budget(calls=2)),))
    for count, reason in ((2, ReasonCode.ALLOWED), (3, ReasonCode.BUDGET_EXHAUSTED)):
        made = [call(args={"n": number}, key=str(number)) for number in range(count)]
        decision = arbitrate(kept, proposal(*made, atomic=False), AGENT, NOW, {}).decision
        assert {each.reason_code for each in decision.candidates} == {reason}


# --- issuing ----------------------------------------------------------------------------------------------------------


ROOT = token(
    "root",
    capabilities=["net", "prod"],
    scopes=[UNDER_DATA, Scope("mode", ScopeMatch.EXACT, "r")],
    budget=Budget(calls=5),
    expires_at=LATER,
)


@for_each(
    ("fields", "refusal"),
    [
        ({}, None),
        ({"agent_id": "agent-2"}, None),
        ({"tool_ids": ["fs.write"], "capabilities": ["net"], "budget": Budget(5, 1, 1)}, None),
        ({"scopes": [*ROOT.scopes, Scope("x", ScopeMatch.EXACT, 1)]}, None),
        ({"scopes": [Scope("path", ScopeMatch.PREFIX, "/data/a"), ROOT.scopes[1]]}, None),
        ({"scopes": [Scope("path", ScopeMatch.EXACT, "/data/a"), ROOT.scopes[1]]}, None),
        ({"tool_ids": ["fs.write", "shell"]}, IssueRefusal.WIDER_TOOLS),
        ({"capabilities": ["admin"]}, IssueRefusal.WIDER_CAPABILITIES),
        ({"scopes": []}, IssueRefusal.WIDER_SCOPES),
        ({"scopes": [UNDER_DATA]}, IssueRefusal.WIDER_SCOPES),
        ({"scopes": [Scope("path", ScopeMatch.PREFIX, "/"), ROOT.scopes[1]]}, IssueRefusal.WIDER_SCOPES),
        ({"scopes": [Scope("path", ScopeMatch.EXACT, "/data/../x"), ROOT.scopes[1]]}, IssueRefusal.WIDER_SCOPES),
        ({"scopes": [UNDER_DATA, Scope("mode", ScopeMatch.PREFIX, "r")]}, IssueRefusal.WIDER_SCOPES),
        ({"scopes": [UNDER_DATA, Scope("mode", ScopeMatch.EXACT, "w")]}, IssueRefusal.WIDER_SCOPES),
        ({"budget": Budget()}, IssueRefusal.WIDER_BUDGET),
        ({"budget": Budget(calls=6)}, IssueRefusal.WIDER_BUDGET),
        ({"expires_at": None}, IssueRefusal.WIDER_EXPIRY),
        ({"expires_at": "2027-01-01T00:00:00.000000Z"}, IssueRefusal.WIDER_EXPIRY),
        ({"expires_at": NOW}, IssueRefusal.MALFORMED),
        ({"token_id": "root"}, IssueRefusal.ALREADY_ISSUED),
        ({"tool_ids": []}, IssueRefusal.MALFORMED),
        ({"tool_ids": [""]}, IssueRefusal.MALFORMED),
        ({"tool_ids": ["fs.write"] * (MAX_TOOL_IDS + 1)}, IssueRefusal.MALFORMED),
        ({"capabilities": ["net"] * (MAX_NAMES + 1)}, IssueRefusal.MALFORMED),
        ({"scopes": list(ROOT.scopes) * MAX_SCOPES}, IssueRefusal.MALFORMED),
        ({"scopes": [Scope("a..b", ScopeMatch.EXACT, 1)]}, IssueRefusal.MALFORMED),
        ({"scopes": [Scope("x" * (MAX_TEXT_CHARACTERS + 1), ScopeMatch.EXACT, 1)]}, IssueRefusal.MALFORMED),
        ({"scopes": [Scope("a", ScopeMatch.EXACT, "x" * (MAX_TEXT_CHARACTERS + 1))]}, IssueRefusal.MALFORMED),
        ({"scopes": [Scope("a", ScopeMatch.PREFIX, 1)]}, IssueRefusal.MALFORMED),
        ({"budget": Budget(calls=-1)}, IssueRefusal.MALFORMED),
        ({"agent_id": ""}, IssueRefusal.MALFORMED),
    ],
)
@for_each("issuer", [AGENT, OPERATOR], ids=["holder", "operator"])
def test_a_child_is_narrower_or_refused(issuer: Actor, fields: dict[str, Any], refusal: IssueRefusal | None) -> None:
    assert issue_refusal(space(tokens=(ROOT,)), child(ROOT, **fields), issuer, NOW) == refusal


def test_roots_are_issued_by_operators_alone() -> None:
    assert issue_refusal(space(), ROOT, OPERATOR, NOW) is None
    assert issue_refusal(space(), ROOT, AGENT, NOW) == IssueRefusal.NOT_PERMITTED


def test_only_the_holder_issues_a_child_and_others_do_not_learn_whether_there_is_a_parent() -> None:
    kept = space(tokens=(ROOT,))
    for issuer in (OTHER, Actor(ActorKind.TOOL, AGENT.id)):
        assert issue_refusal(kept, child(ROOT), issuer, NOW) == IssueRefusal.NOT_PERMITTED
        assert issue_refusal(kept, child(ROOT, parent_id="none"), issuer, NOW) == IssueRefusal.NOT_PERMITTED
    assert issue_refusal(kept, child(ROOT, parent_id="none"), OPERATOR, NOW) == IssueRefusal.PARENT_UNKNOWN


def test_a_parent_that_is_no_longer_good_has_no_more_children() -> None:
    expired = token("root", expires_at=EARLIER)
    assert issue_refusal(space(tokens=(expired,)), child(expired, expires_at=None), AGENT, NOW) == (
        IssueRefusal.PARENT_EXPIRED
    )
    revoked = space(tokens=(ROOT,), revoked=Map({"root": 1}))
    assert issue_refusal(revoked, child(ROOT), AGENT, NOW) == IssueRefusal.PARENT_REVOKED


def test_a_line_of_tokens_has_an_end() -> None:
    line = [token("t0")]
    while len(line) < MAX_LINE:
        line.append(child(line[-1], token_id=f"t{len(line)}"))
    kept = space(tokens=tuple(line))
    assert len(token_line(kept.capabilities, line[-1].token_id).tokens) == MAX_LINE
    assert issue_refusal(kept, child(line[-1]), OPERATOR, NOW) == IssueRefusal.LINE_TOO_LONG


@pytest.mark.req("SS01-CHILD-NARROWER")
@given(
    tokens(),
    tokens(),
    st.lists(scopes(), max_size=2),
    st.lists(constraints(), max_size=4),
    calls(),
    states(),
    readings(),
)
def test_a_child_never_allows_what_its_parent_denies(
    root: Capability,
    other: Capability,
    narrowing: list[Scope],
    guards: list[str],
    made: Any,
    state: dict[str, str],
    belief: Any,
) -> None:
    below = child(root, capabilities=other.capabilities, tool_ids=other.tool_ids, scopes=[*root.scopes, *narrowing])
    assume(wider_than(root, below) is None)
    kept = space(
        {f"constraint.{number}": text for number, text in enumerate(guards)} | {"constraint.all": payload()},
        state,
        tools=(tool(), tool("email.send")),
        tokens=(root, below),
    )

    def verdict(token_id: str) -> Verdict:
        asked = proposal(msgspec.structs.replace(made, capability_token_id=token_id))
        return arbitrate(kept, asked, AGENT, NOW, belief).decision.verdict

    assert verdict("child") is not Verdict.ALLOW or verdict("root") is Verdict.ALLOW
