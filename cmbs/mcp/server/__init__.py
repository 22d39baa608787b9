"""An MCP server of belief and action: tools, resources and prompts over the operations of the HTTP API."""
