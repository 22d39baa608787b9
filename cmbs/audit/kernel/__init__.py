"""Proof documents, and their verification: a function of the document and of what the reader kept. Pure."""
