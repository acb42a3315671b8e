"""A package of its own that adds to keras_transformers; its tests install it."""
