"""A gateway in front of MCP servers: agents see the tools of the servers, and every call is a proposal in a space."""
