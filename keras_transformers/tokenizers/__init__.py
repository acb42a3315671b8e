"""Converts text to token ids and back inside the TensorFlow graph, and trains vocabularies.

`WordPieceTokenizer` is for BERT, `SentencePieceTokenizer` for translation, `T5Tokenizer` for T5,
`CharacterTokenizer` for ELMo, `NgramTokenizer` for fastText, `BytePairTokenizer` for GPT-2,
`SymbolTokenizer` for letters and phonemes. Each returns the same ids in Python, in tf.data and in a
SavedModel in TF Serving.
"""

from keras_transformers.rooms import open_room

__getattr__, __dir__ = open_room(__name__, __file__)
