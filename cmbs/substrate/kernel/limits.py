"""The largest of everything that spaces take. Needs nothing but the standard library, so that settings can hold it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SpaceLimits:
    """The largest of everything that a space takes. The names are those of the errors and of the settings."""

    space_id_length: int = 1024
    candidates_per_proposal: int = 100
    keys_per_proposal: int = 1_000
    space_value_bytes: int = 65_536
    space_args_bytes: int = 262_144
    space_schema_bytes: int = 262_144
    space_result_bytes: int = 16_777_216
    policy_keys: int = 20_000
    ids_per_message: int = 1_000
    claim_bytes: int = 65_536
    space_text_length: int = 4_096
    wait_ms: int = 30 * 86_400_000
    cached_spaces: int = 1_000
    cached_space_bytes: int = 1_073_741_824
    executions_at_once: int = 16
    diff_events: int = 100_000
