"""Text out of a model, one token at a time: greedy search, beam search, sampling.

A search knows no model. It calls a step function that feeds one token a row and answers with the
logits of the next, and carries the step's cache from step to step; `decoding.step` tells how.
"""

from keras_transformers.decoding.beam import beam_search
from keras_transformers.decoding.greedy import greedy_search
from keras_transformers.decoding.sampling import sample
from keras_transformers.decoding.step import Cache, Hypotheses, StepFunction

__all__ = ["Cache", "Hypotheses", "StepFunction", "beam_search", "greedy_search", "sample"]
