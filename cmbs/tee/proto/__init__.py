"""The messages of Tee, generated from `tee.proto` by `scripts/generate_stubs.py`."""
