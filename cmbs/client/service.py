"""The operations on the server itself: its health, its caller, and its signed checkpoints."""

from __future__ import annotations

from cmbs.client.calls import Call, read, write
from cmbs.client.operations import operation
from cmbs.client.results import belief, policies


class ServiceOperations:
    """The server as a whole."""

    @operation
    def whoami(self) -> Call[belief.WhoAmI]:
        """Who the server takes you for."""
        return read("/v1/whoami", answer=belief.WhoAmI)

    @operation
    def healthz(self) -> Call[belief.Health]:
        """Whether the process is alive."""
        return read("/healthz", answer=belief.Health)

    @operation
    def readyz(self) -> Call[belief.Health]:
        """Whether the store answers and is whole."""
        return read("/readyz", answer=belief.Health)

    @operation
    def get_checkpoint(self) -> Call[policies.SignedCheckpoint]:
        """The newest signed checkpoint: keep it, to notice later that entries are gone."""
        return read("/v1/checkpoint", answer=policies.SignedCheckpoint)

    @operation
    def sign_checkpoint(self) -> Call[policies.SignedCheckpoint]:
        """A checkpoint of everything up to now. For operators."""
        return write("/v1/checkpoint", answer=policies.SignedCheckpoint, body={}, recorded=False)

    @operation
    def get_checkpoint_keys(self) -> Call[policies.LogKeys]:
        """The keys that checkpoints are signed with."""
        return read("/v1/checkpoint/keys", answer=policies.LogKeys)

    @operation
    def prove_consistency(self, from_: int = 0) -> Call[policies.ConsistencyProof]:
        """A proof that the newest checkpoint continues the one with `from_` records."""
        return read("/v1/checkpoint/consistency", answer=policies.ConsistencyProof, from_=from_)

    @operation
    def prove_stream_head(self, stream_id: str) -> Call[policies.RecordProof]:
        """A proof of what the newest checkpoint says of a stream."""
        return read("/v1/checkpoint/streams/{}", stream_id, answer=policies.RecordProof)
