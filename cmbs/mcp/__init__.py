"""MCP in both directions: a server of belief and action for agents, and a gateway in front of the servers of others.

Both reach spaces and sessions by the operations of the HTTP API, in this process or elsewhere: the rules, the keys and
the scopes are those of that API, and nothing here decides.
"""
