"""In a model on JAX, gradients of embeddings are added up in float32 in mixed precision.

XLA's CPU adds up 16-bit numbers in float32 too, and a GPU does not: the program tells, not its
result.
"""

PROGRAM = """
import re
import jax, keras, numpy as np
import keras_transformers as kt
keras.config.set_dtype_policy("mixed_bfloat16")
try:
    model = kt.bert_tiny(vocabulary_size=50)
finally:
    keras.config.set_dtype_policy("float32")
ids = np.zeros((2, 7), "int32")
given = {"token_ids": ids, "segment_ids": ids, "padding_mask": ids == 0}
trainable, others = ([v.value for v in group] for group in (
    model.trainable_variables, model.non_trainable_variables))
def total(trainable):
    outputs, _ = model.stateless_call(trainable, others, given)
    return outputs["pooled_output"].astype("float32").sum()
program = str(jax.make_jaxpr(jax.grad(total))(trainable))
print(*re.findall(r"(\\w+)\\[(?:2|50),128\\] = scatter-add", program))
"""


def test_no_embedding_adds_up_16_bit_numbers(on_jax):
    assert on_jax(PROGRAM).split() == ["f32", "f32"]  # of segments and of tokens
