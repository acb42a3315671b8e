"""From files to tf.data pipelines: one module a kind of data."""
