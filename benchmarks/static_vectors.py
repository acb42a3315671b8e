"""Distils an encoder into static vectors, trains them, and measures all of them.

    python benchmarks/static_vectors.py --data DATA --model minilm/
        > benchmarks/results/static_vectors.txt

DATA is the folder of public data. XQuAD: finding each of the 1,190 English questions' paragraph
among all 240. SICK: the cosines of its pairs of sentences are compared with human scores. The texts
that train the vectors are of neither: Multi30k's captions, SST-2, MRPC, WikiText-2 and NLTK's
corpora, without any labels. The best epoch is chosen by some of these texts. Microseconds are of
CPU for a question of XQuAD, from the text to its vector, in batches of 64.
"""

import argparse
import gzip
import random
import re
import time
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import keras_transformers.quiet  # before Keras, which loads TensorFlow

import tensorflow as tf

import keras_transformers as kt
from keras_transformers.data.text import TextPairs, load_text_pairs, pairs_of_questions
from keras_transformers.fitting import distil_static, similarity_scores, train_static

SHORTEST, LONGEST = 20, 300  # characters of a text to train on
BATCH = 64  # texts, to time them


def lines(path: Path) -> list[str]:
    """Returns the lines of a compressed file."""
    return gzip.decompress(path.read_bytes()).decode("utf-8-sig").splitlines()


def members(path: Path, start: str) -> Iterator[str]:
    """Yields the texts of the files in a zip archive whose names have this start."""
    with zipfile.ZipFile(path) as archive:
        for name in sorted(archive.namelist()):
            if name.startswith(start) and not name.endswith("/"):
                yield archive.read(name).decode("utf-8", "replace")


def training_texts(data: Path) -> list[str]:
    """Returns sentences and paragraphs of many kinds, none of them of XQuAD or SICK."""
    texts = lines(data / "multi30k/train.en.gz")
    texts += [line.split("\t")[0] for line in lines(data / "sst2/train.tsv.gz")]
    for line in lines(data / "mrpc/msr_paraphrase_train.txt.gz")[1:]:
        texts += line.split("\t")[3:5]
    for part in ("valid", "test"):
        for line in lines(data / f"text/wikitext2.{part}.txt.gz"):
            if not line.strip().startswith("="):
                texts += re.split(r"(?<= [.?!]) ", re.sub(r" @(\S)@ ", r"\1", line))
    for text in members(data / "nltk/brown.zip", "brown/c"):
        for line in text.splitlines():
            texts.append(" ".join(word.rpartition("/")[0] for word in line.split()))
    for text in members(data / "nltk/sentence_polarity.zip", "sentence_polarity/rt-"):
        texts += text.splitlines()
    for text in members(data / "nltk/state_union.zip", "state_union/"):
        texts += text.splitlines()
    for text in members(data / "nltk/rte.zip", "rte/rte"):
        texts += re.findall(r"<[th]>(.*?)</[th]>", text, re.DOTALL)
    return [x for x in dict.fromkeys(map(str.strip, texts)) if SHORTEST <= len(x) <= LONGEST]


def main() -> None:
    """Prints a row for the encoder, the distilled vectors and the trained ones."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--dims", type=int, default=256)
    parser.add_argument("--texts", type=int, default=0, help="how many texts; all by default")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--save", type=Path, help="a new folder for the trained vectors")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    sick = load_text_pairs(
        options.data / "sick/SICK_train.txt.gz",
        text_column="sentence_A",
        text_b_column="sentence_B",
        score_column="relatedness_score",
        score_scale=5.0,
    )
    pairs = {"XQuAD": pairs_of_questions(options.data / "xquad/xquad.en.json.gz"), "SICK": sick}
    texts = training_texts(options.data)
    random.Random(options.seed).shuffle(texts)
    texts = texts[: options.texts or len(texts)]
    print("| vectors | parameters | XQuAD nDCG@10 | SICK Spearman | µs a text | note |")
    print("|---|--:|--:|--:|--:|---|")
    teacher = kt.load(options.model, pipeline="embedding")
    show(options.model.name, teacher, pairs)
    start = time.monotonic()
    static = distil_static(teacher, dims=options.dims)
    show("distilled", static, pairs, f"in {time.monotonic() - start:.0f} s")
    start = time.monotonic()
    found = train_static(
        static,
        teacher,
        texts,
        epochs=options.epochs,
        learning_rate=options.learning_rate,
        seed=options.seed,
        verbose=0,
    )
    note = f"on {len(texts):,} texts in {time.monotonic() - start:.0f} s; cosine with the encoder"
    note += f" {found['val_cosine_before']:.3f}, then {found['val_cosine']:.3f}"
    show("trained", static, pairs, note)
    if options.save:
        static.save(options.save)


def show(
    name: str, embed: kt.pipelines.Embedder, pairs: dict[str, TextPairs], note: str = ""
) -> None:
    """Prints a row."""
    found = similarity_scores(embed, pairs["XQuAD"])["ndcg_at_10"]
    similar = similarity_scores(embed, pairs["SICK"])["spearman"]
    size = embed.model.count_params()
    took = microseconds(embed, pairs["XQuAD"].texts)
    print(f"| {name} | {size:,} | {found:.3f} | {similar:.3f} | {took:.0f} | {note} |", flush=True)


def microseconds(embed: kt.pipelines.Embedder, texts: Sequence[str]) -> float:
    """Returns the CPU time for a text."""
    run = tf.function(
        lambda text: embed.answer(text=text), input_signature=[tf.TensorSpec([None], tf.string)]
    )
    run(tf.constant(texts[:BATCH]))
    start = time.process_time()
    for place in range(0, len(texts), BATCH):
        run(tf.constant(texts[place : place + BATCH]))
    return (time.process_time() - start) / len(texts) * 1e6


if __name__ == "__main__":
    main()
