"""The API as types and one table of operations: what is sent, what is answered, and every error, described once."""
