"""Detects the words of a text that a generator has replaced, with ELECTRA's discriminator."""
