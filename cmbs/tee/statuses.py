"""The one table of errors and gRPC statuses."""

from __future__ import annotations

import grpc

from cmbs.errors import GraphTooLarge, GraphUnavailable, IncidentNotFound, InvalidGraph, TeeError

STATUS_OF: dict[type[TeeError], grpc.StatusCode] = {
    InvalidGraph: grpc.StatusCode.INVALID_ARGUMENT,
    GraphTooLarge: grpc.StatusCode.RESOURCE_EXHAUSTED,
    IncidentNotFound: grpc.StatusCode.NOT_FOUND,
    GraphUnavailable: grpc.StatusCode.UNAVAILABLE,
}
