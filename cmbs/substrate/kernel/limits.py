"""The largest of everything that spaces take. Needs nothing but the standard library, so that settings can hold it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SpaceLimits:
    """The largest of everything that a space takes. The names are those of the errors and of the settings.

    Those that begin with `agent_` hold for each agent of a space: what it has waiting, has issued under its own tokens
    and keeps in memory, and how much it proposes to a process in a second of the clock.
    """

    space_id_length: int = 1024
    candidates_per_proposal: int = 100
    keys_per_proposal: int = 1_000
    # Of the values that one delta sets.
    delta_bytes: int = 4_194_304
    space_value_bytes: int = 65_536
    space_args_bytes: int = 262_144
    space_schema_bytes: int = 262_144
    space_result_bytes: int = 16_777_216
    policy_keys: int = 20_000
    policy_source_bytes: int = 33_554_432
    ids_per_message: int = 1_000
    claim_bytes: int = 65_536
    case_attribute_bytes: int = 65_536
    agents_per_case: int = 1_000
    space_text_length: int = 4_096
    wait_ms: int = 30 * 86_400_000
    cached_spaces: int = 1_000
    cached_space_bytes: int = 1_073_741_824
    # Calls that the server runs at once: in all, of one space, and of one agent in one space.
    executions_at_once: int = 64
    space_executions_at_once: int = 32
    agent_executions_at_once: int = 8
    diff_events: int = 100_000
    agent_parked: int = 1_000
    agent_asked: int = 1_000
    agent_ready: int = 1_000
    agent_tokens: int = 10_000
    agent_memory_entries: int = 100_000
    # Of proposals that wait, and of claims in memory: of one agent, and of all agents of a space.
    agent_waiting_bytes: int = 33_554_432
    space_waiting_bytes: int = 268_435_456
    agent_memory_bytes: int = 67_108_864
    space_memory_bytes: int = 536_870_912
    # Of the keys and values of one namespace of a state.
    state_bytes: int = 67_108_864
    agent_proposals_per_second: int = 5_000
