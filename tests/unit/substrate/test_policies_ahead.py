"""Large policies are compiled in the thread of the caller, and not in the writer."""

from __future__ import annotations

import json

import pytest

from cmbs.errors import CmbsError
from cmbs.substrate.kernel.policy.file import compile_file
from cmbs.substrate.kernel.policy.policy import LARGE_PAIRS, compile_policy, find_recent
from tests.support.policies import file_of
from tests.support.spaces import BlockingStore, World, assert_replays, change_policy, constraint


@pytest.mark.req("SS01-SCALE-04")
@pytest.mark.parametrize("store", [None, BlockingStore()], ids=["alone", "in groups"])
def test_a_large_policy_is_compiled_before_the_writer_has_it(store: BlockingStore | None) -> None:
    def rules(name: str) -> dict[str, str]:
        return {
            f"constraint.{n}": constraint(effect="deny", subject={"tool_id": f"{name}{n}"}) for n in range(LARGE_PAIRS)
        }

    world = World(store)
    first = rules(f"a{store is None}")
    created = world.create(first)
    assert created.policy is find_recent(first)
    second = {**first, **rules(f"b{store is None}")}
    changed = change_policy(world, second)
    assert changed.policy is find_recent(second)
    assert changed.policy == compile_policy(json.loads(json.dumps(second)))
    fewer = {key: text for key, text in second.items() if key > "constraint.5"}
    unset = sorted(set(second) - set(fewer))
    assert dict(change_policy(world, {"policy.schema.s": "true"}, unset).policy.pairs) == {
        **fewer,
        "policy.schema.s": "true",
    }
    with pytest.raises(CmbsError):
        change_policy(world, {**rules("c"), "constraint.0": "no constraint"})
    assert_replays(world)
    world.close()


@pytest.mark.req("SS01-SCALE-04")
@pytest.mark.parametrize("name", ["policy.json", "policy.yaml"])
def test_a_file_pauses_at_every_rule_and_every_few_values(name: str) -> None:
    def count_pauses(data: bytes) -> int:
        pauses: list[None] = []
        paused = compile_file(data, name, lambda: pauses.append(None))
        assert paused.pairs == compile_file(data, name).pairs
        return len(pauses)

    few, many = (
        json.dumps({"format": 2, "title": "t", "rules": [{"name": f"r{n}", "allow": f"t{n}"} for n in range(count)]})
        for count in (1, 101)
    )
    # A rule has five values, and there is a pause at every sixteenth.
    assert count_pauses(many.encode()) - count_pauses(few.encode()) >= 100 + 100 * 5 // 16
    listed = json.dumps(file_of({"policy.value.v": list(range(160))})).encode()
    assert count_pauses(listed) >= 10
