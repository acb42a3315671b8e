"""Pretraining encoders: masked words, next sentences, replaced tokens."""
