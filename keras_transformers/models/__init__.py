"""The model families, one a file, and the heads that go on top of any encoder."""
