"""What servers ask the kernel of a space: who runs a call, who may see a trace, where a name was written."""

from __future__ import annotations

import json

import pytest

from cmbs.documents.findings import InvalidDocument
from cmbs.substrate.kernel.policy.file import compile_file
from cmbs.substrate.kernel.retention import waits_for_caller
from tests.support.spaces import ANY, World, call, caller_tool

FILE = {
    "format": 2,
    "rules": [{"name": "reads", "allow": ["status", "list"], "when": "args.n == 1"}],
}


@pytest.mark.req("SS01-EXEC-01")
def test_a_proposal_waits_for_its_caller_while_a_call_of_its_own_runs(world: World) -> None:
    world.create({"constraint.any": ANY})
    world.equip(caller_tool("run"))
    world.propose(call("run"), proposal_id="p")
    assert waits_for_caller(world.space, world.space.proposals["p"])


def test_the_place_of_a_name_is_found_and_a_condition_that_is_nearly_known_has_a_fix() -> None:
    text = json.dumps(FILE, indent=1)
    source_map = compile_file(text.encode(), "policy.json").source_map
    place = source_map.find_name("constraint.reads", "subject", "list")
    assert place is not None
    assert text.splitlines()[place.line - 1].strip() == '"list"'
    wrong = text.replace("args.n == 1", "case.belef.n_survivors == 1")
    with pytest.raises(InvalidDocument) as caught:
        compile_file(wrong.encode(), "policy.json")
    (finding,) = caught.value.findings
    assert finding.fix is not None
    assert (finding.fix.found, finding.fix.accepted) == ("belef", "belief")
