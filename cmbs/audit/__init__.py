"""Checking stores and moving streams between them: verify, fsck, export and import."""
