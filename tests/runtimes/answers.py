"""Answers requests with exports: the program that runs in each TensorFlow, old or new.

python answers.py REQUESTS ANSWERS reads {export's folder: [[signature, inputs], ...]} and writes
one line per export and loader: {"folder", "loader", "outputs": [...] or "error"}. The outputs of a
call that the graph refuses (InvalidArgumentError) are {}. It needs TensorFlow, tensorflow-text's op
libraries and NumPy; of this package only the two loaders.
"""

import json
import sys
from pathlib import Path

import tensorflow as tf

from keras_transformers.saved_model.checks import check
from keras_transformers.saved_model.examples import decode_array, encode_array


def main(requests: str, answers: str) -> None:
    check.forget_ourselves()
    with open(answers, "w", encoding="utf-8") as file:
        for folder, calls in json.loads(Path(requests).read_text("utf-8")).items():
            metadata = json.loads(Path(folder, check.METADATA_FILE).read_text("utf-8"))
            for loader, load in check.LOADERS.items():
                line = {"folder": folder, "loader": loader}
                try:
                    run = load(folder, metadata["signatures"])
                    line["outputs"] = [answered(run, *call) for call in calls]
                except Exception as error:  # whatever this TensorFlow says is the answer
                    line["error"] = check.first_words(error)
                file.write(json.dumps(line) + "\n")
                file.flush()  # a crash loses the exports after it, not those before


def answered(run, signature, inputs):
    arrays = {key: decode_array(value) for key, value in inputs.items()}
    try:
        outputs = run(signature, arrays)
    except tf.errors.InvalidArgumentError:
        return {}
    return {key: encode_array(value) for key, value in outputs.items()}


if __name__ == "__main__":
    main(*sys.argv[1:])
