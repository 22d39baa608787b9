"""A decision point behind the gateways of others: each asks in its own protocol, and is answered in it.

Docker's MCP gateway and ToolHive ask over HTTP, agentgateway over gRPC. A call becomes a proposal in a space, by the
route that hooks use. Whatever goes wrong on the way is a no.
"""
