"""Writes bert_characters.npz, the tables of BERT's character normalization.

python -m keras_transformers.tokenizers.normalization.make_bert_characters
"""

import numpy as np

from keras_transformers.files import replaced
from keras_transformers.tokenizers.normalization.bert_characters import FILE, tables


def main() -> None:
    """Replaces the file."""
    with replaced(FILE) as scratch, scratch.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **tables())


if __name__ == "__main__":
    main()
