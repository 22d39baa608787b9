"""The messages of agentgateway, generated from `ext_mcp.proto` by `scripts/generate_stubs.py`."""
