"""Toys of recipes: each function writes data to a folder, and returns the recipe's options."""

import itertools
import json

import numpy as np
from recipe_runs import TINY_TRANSFORMER, save_encoder, write_documents

import keras_transformers as kt
from keras_transformers.tokenizers import BytePairTokenizer

PEOPLE = [(w, v, c) for w in ("ann", "bob") for v in ("lives", "works") for c in ("bonn", "rome")]


def encoder(folder):
    words = ["ann", "bob", "lives", "works", "in", "bonn", "rome", "where", "?", "."]
    return {
        "weights": save_encoder(folder, words),
        "max_sequence_length": 16,
        "learning_rate": 1e-3,
    }


def sentences(folder):
    rows = [f"{w} {v} in {c} .{' .' * (i % 3)}\t{c}" for i in range(9) for w, v, c in PEOPLE]
    (folder / "train.tsv").write_text("\n".join(["sentence\tlabel", *rows]) + "\n")
    return {"train_file": folder / "train.tsv", "dev_file": folder / "train.tsv"}


def conll(folder):
    blocks = [f"{w} B-PER\n{v} O\nin O\n{c} B-LOC\n" for w, v, c in PEOPLE]
    (folder / "train.txt").write_text("\n".join(blocks * 9))
    return {"train_file": folder / "train.txt", "dev_file": folder / "train.txt"}


def classification(folder):
    # 24 different sentences are left of 72.
    return encoder(folder) | sentences(folder) | {"batch_size": 5, "recompute": True}


def fasttext_classification(folder):
    return sentences(folder) | {"batch_size": 5, "num_buckets": 50}


def glue(folder):
    rows = [f"{w} {v} in {c} .\t{int(c == 'bonn')}" for _ in range(9) for w, v, c in PEOPLE]
    (folder / "train.tsv").write_text("\n".join(["sentence\tlabel", *rows]) + "\n")
    files = {"train_file": folder / "train.tsv", "dev_file": folder / "train.tsv"}
    return encoder(folder) | files | {"task": "sst2", "batch_size": 15}


def tagging(folder):
    return encoder(folder) | conll(folder) | {"batch_size": 15}


def feature_based(folder):
    return tagging(folder) | {"layers": 1, "units": 8}


def question_answering(folder):
    paragraphs = []
    for number, (w, v, c) in enumerate(PEOPLE * 9):
        context = f"{w} {v} in {c} ."
        answers = [{"text": c, "answer_start": context.index(c)}]
        questions = [{"id": f"q{number}", "question": "where ?", "answers": answers}]
        paragraphs.append({"context": context, "qas": questions})
    (folder / "squad.json").write_text(
        json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]})
    )
    files = {"train_file": folder / "squad.json", "dev_file": folder / "squad.json"}
    windows = {"doc_stride": 4, "max_question_length": 4, "batch_size": 15}
    return encoder(folder) | files | windows


def multiple_choice(folder):
    rows = [
        {"text": f"{w} {v} in", "choices": [c, w, "?", ". ."][: 2 + i % 3], "label": 0}
        for i, (w, v, c) in enumerate(PEOPLE * 9)
    ]
    (folder / "choices.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    files = {"train_file": folder / "choices.jsonl", "dev_file": folder / "choices.jsonl"}
    return encoder(folder) | files | {"batch_size": 15}


def multi_label_classification(folder):
    rows = [
        {"text": f"{w} {v} in {c} .", "labels": [w, c] if i % 3 else [c]}
        for i, (w, v, c) in enumerate(PEOPLE * 9)
    ]
    (folder / "sets.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    columns = {"text_column": "text", "label_column": "labels"}
    files = {"train_file": folder / "sets.jsonl", "dev_file": folder / "sets.jsonl"}
    return encoder(folder) | files | columns | {"batch_size": 15}


def few_shot(folder):
    return encoder(folder) | sentences(folder) | {"texts_per_label": 3, "batch_size": 5}


def embedding(folder):
    rows = [f"{w} {v}\tin {c} ." for w, v, c in PEOPLE * 9]
    (folder / "pairs.tsv").write_text("\n".join(["sentence1\tsentence2", *rows]) + "\n")
    files = {"train_file": (folder / "pairs.tsv",), "dev_file": (folder / "pairs.tsv",)}
    return encoder(folder) | files | {"batch_size": 15}


def gpt_classification(folder):
    texts = [" ".join(person) for person in PEOPLE]
    weights = folder / "weights"
    tokenizer = BytePairTokenizer.train(texts, weights, vocabulary_size=262)
    shape = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "max_sequence_length": 40}
    model = kt.families.gpt.gpt(vocabulary_size=tokenizer.vocabulary_size, **shape)
    kt.families.gpt.FAMILY.save(model, weights / "model.safetensors")
    kt.families.gpt.FAMILY.save_config(model, weights / "config.json")
    options = {"weights": weights, "max_sequence_length": 40, "batch_size": 5}
    return options | sentences(folder)


def elmo_tagging(folder):
    encoder = kt.families.elmo.elmo(
        lstm_dim=4, projection_dim=4, num_highways=1, filters=[(1, 4)], max_characters=10
    )
    (folder / "weights").mkdir()
    kt.convert.save_elmo(encoder, folder / "weights/weights.hdf5")
    kt.convert.save_elmo_options(encoder, folder / "weights/options.json")
    return conll(folder) | {"weights": folder / "weights", "units": 4, "batch_size": 15}


def image_classification(folder):
    random = np.random.default_rng(0)
    for name, count in (("train", 80), ("t10k", 20)):
        for kind, array in (
            ("images-idx3", random.integers(0, 256, (count, 4, 4))),
            ("labels-idx1", np.arange(count) % 2),
        ):
            sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
            data = bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes()
            (folder / f"{name}-{kind}-ubyte").write_bytes(data)
    shape = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "batch_size": 15}
    return {"data": folder, **shape}


def pretrain_electra(folder):
    write_documents(folder)
    shape = {"num_layers": 1, "num_heads": 2, "hidden_dim": 16, "generator_size": 0.5}
    text = {"data": folder / "text.txt", "vocabulary_size": 120, "length": 16, "dev_fraction": 0.2}
    return shape | text | {"steps_per_epoch": 5, "batch_size": 8, "dupe_factor": 1}


def pretrain_bert(folder):
    options = pretrain_electra(folder)
    del options["generator_size"], options["length"]
    return options | {"phase_1_length": 16, "phase_2_length": 16}


def pretrain_elmo(folder):
    write_documents(folder)
    shape = {"filters": ((1, 4),), "lstm_dim": 8, "projection_dim": 4, "max_characters": 10}
    text = {"data": folder / "text.txt", "dev_fraction": 0.2, "window_length": 16}
    return shape | text | {"steps_per_epoch": 5, "batch_size": 8, "kneser_ney_order": 2}


def language_model(folder):
    lines = [f"{w} {v} in {c} .\n" for w, v, c in PEOPLE * 20]
    (folder / "text.txt").write_text("".join(lines))
    shape = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "length": 16}
    text = {"data": (folder / "text.txt",), "vocabulary_size": 270, "ngram_order": 2}
    return shape | text | {"batch_size": 15}


def translation(folder):
    words = {"ann": "anna", "bob": "robert", "lives": "lebt", "works": "arbeitet"}
    for split in ("train", "val", "test"):
        rows = [[w, v, *[c] * n] for n in (1, 2, 3) for w, v, c in PEOPLE]
        for language, spell in (("en", str), ("de", lambda word: words.get(word, word))):
            lines = "".join(f"{' '.join(map(spell, row))}.\n" for row in rows)
            (folder / f"{split}.{language}").write_text(lines)
    return encoder_decoder() | {"data": folder, "test_split": "test", "vocabulary_size": 290}


def pronunciation(folder):
    words = map("".join, itertools.product("aekl", repeat=3))
    lines = "".join(f"{word} {' '.join(word.upper())}\n" for word in words)
    (folder / "language.dict").write_text(lines)
    return encoder_decoder() | {"dictionary": folder / "language.dict", "extra_length": 2}


def encoder_decoder():
    return {
        "model_options": TINY_TRANSFORMER,
        "max_sequence_length": 32,
        "batch_tokens": 4096,
        "warmup_steps": 4,
        "num_beams": 2,
    }
