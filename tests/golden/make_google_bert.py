"""Makes google_bert.npz from a checkpoint and outputs of Google's own code, written elsewhere.

    python3.7 -m venv env
    env/bin/pip install tensorflow==1.15.5 bert-tensorflow==1.0.4 "protobuf<3.21" "numpy<1.19"
    python tests/golden/make_google_bert.py FOLDER OUTPUTS.npz

The first environment's `bert.modeling.BertModel` wrote FOLDER: bert_config.json and
bert_model.ckpt, random weights far from zero, with the head of masked words. OUTPUTS.npz has the
token ids, mask and segments (`in_input_ids`, `in_attention_mask`, `in_token_type_ids`), and the
last layer's vectors and the logits of the vocabulary that it computed from them (`out_seq`,
`out_logits`).
"""

import json
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

FILE = Path(__file__).with_name("google_bert.npz")


def main(folder: str, outputs: str) -> None:
    """Freezes a checkpoint's arrays, its configuration and the outputs in one file."""
    prefix = str(Path(folder, "bert_model.ckpt"))
    arrays = {
        name: tf.train.load_variable(prefix, name) for name, _ in tf.train.list_variables(prefix)
    }
    config = Path(folder, "bert_config.json").read_text()
    np.savez_compressed(
        FILE,
        config=np.array(json.dumps(json.loads(config))),
        **{f"checkpoint/{name}": array for name, array in arrays.items()},
        **dict(np.load(outputs)),
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
