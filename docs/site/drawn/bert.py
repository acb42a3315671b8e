"""BERT: its input, its four kinds of task, and how it hides words."""

import numpy as np
import tensorflow as tf
from drawing import WIDTH, Drawing

from keras_transformers.data.pretraining.masking import Masker
from keras_transformers.tokenizers import WordPieceTokenizer

_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
_WORDS = ["my", "dog", "is", "cute", "he", "likes", "play", "##ing", "hairy", "apple", "the", "a"]


def bert_input() -> Drawing:
    """The three embeddings of each token of a pair, and their sum."""
    tokenizer = WordPieceTokenizer([*_SPECIAL, *_WORDS])
    packed = tokenizer(["my dog is cute"], ["he likes playing"], max_sequence_length=16)
    ids, segments = (packed[key].numpy()[0] for key in ("token_ids", "segment_ids"))
    tokens = [tokenizer.vocabulary[i] for i in ids]
    row = 27
    drawing = Drawing(
        len(tokens) * row + 64, "BERT's input for a pair: token, segment and position embeddings"
    )
    columns = [(58, "token"), (148, "segment"), (222, "position"), (300, "sum")]
    for x, name in columns:
        drawing.words(x, 14, name, "bold")
    for i, (token, segment) in enumerate(zip(tokens, segments, strict=True)):
        y = 42 + row * i
        letter = "AB"[segment]
        drawing.node((58, y), (82, 21), f"E {token}", "embedding")
        drawing.node((148, y), (48, 21), f"E {letter}", "norm" if segment else "attention")
        drawing.node((222, y), (48, 21), f"E {i}", "plain")
        drawing.node((300, y), (48, 21), f"x {i}", "feed_forward")
        for x in (111, 185):
            drawing.words(x, y, "+")
        drawing.words(262, y, "=")
    drawing.words(
        WIDTH / 2, 42 + row * len(tokens) + 4, "vectors of 768 numbers, from three tables", "faint"
    )
    return drawing


def bert_heads() -> Drawing:
    """Four kinds of task on one encoder."""
    block = 148
    drawing = Drawing(
        4 * block, "Four tasks on BERT: a pair's class, a sentence's class, a span, and tags"
    )
    pair = ["[CLS]", "text A", "[SEP]", "text B", "[SEP]"]
    single = ["[CLS]", "my", "dog", "is", "cute"]
    question = ["[CLS]", "who …?", "[SEP]", "Ada", "Byron …"]
    named = ["[CLS]", "Ada", "Byron", "in", "London"]
    kinds = [
        ("Pair of sentences: MNLI, QQP, RTE", pair, {0: "class"}),
        ("One sentence: SST-2, CoLA", single, {0: "class"}),
        ("Question: SQuAD", question, {3: "start", 4: "end"}),
        ("Each token: CoNLL-2003", named, {1: "B-PER", 2: "I-PER", 3: "O", 4: "B-LOC"}),
    ]
    for i, (caption, tokens, outputs) in enumerate(kinds):
        top = i * block
        drawing.words(8, top + 12, caption, "bold", "start")
        drawing.box(8, top + 66, 324, 24, "attention")
        drawing.words(WIDTH / 2, top + 78, "BERT")
        for j, token in enumerate(tokens):
            x = 40 + 65 * j
            drawing.node((x, top + 122), (62, 22), token, "embedding")
            drawing.arrow([(x, top + 111), (x, top + 92)])
            if j in outputs:
                drawing.arrow([(x, top + 66), (x, top + 50)])
                drawing.node((x, top + 38), (62, 22), outputs[j], "norm")
    return drawing


def masking() -> Drawing:
    """15 % of the tokens are chosen; of these, 80 % are masked, 10 % replaced, 10 % stay."""
    vocabulary = [*_SPECIAL, *_WORDS, *(f"word{i}" for i in range(2000))]
    masker = Masker(vocabulary, max_predictions=80)
    original = np.random.default_rng(0).integers(5, len(vocabulary), (1000, 512)).astype("int32")
    masked = {name: each.numpy() for name, each in masker(original, tf.constant([0, 1])).items()}
    chosen = np.zeros(original.shape, bool)
    real = masked["mask_weights"] > 0
    rows = np.nonzero(real)[0]
    chosen[rows, masked["mask_positions"][real]] = True
    hidden = masked["token_ids"][chosen]
    shares = [
        np.mean(hidden == vocabulary.index("[MASK]")),
        np.mean((hidden != vocabulary.index("[MASK]")) & (hidden != original[chosen])),
        np.mean(hidden == original[chosen]),
    ]
    drawing = Drawing(
        330, "Masking: of 15 % of the tokens, 80 % become [MASK], 10 % another word, 10 % stay"
    )
    words = ("my", "dog", "is", "hairy")
    for j, word in enumerate(words):
        color = "attention" if word == "hairy" else "embedding"
        drawing.node((50 + 80 * j, 22), (68, 24), word, color)
    drawing.words(332, 48, f"one of {1 / chosen.mean():.1f} tokens is chosen", "faint", "end")
    outcomes = [
        ("[MASK]", "80 %: hidden", "feed_forward"),
        ("apple", "10 %: a random word", "norm"),
        ("hairy", "10 %: stays", "plain"),
    ]
    for i, ((word, rule, color), share) in enumerate(zip(outcomes, shares, strict=True)):
        y = 108 + 64 * i
        drawing.words(8, y - 24, rule, "bold", "start")
        drawing.words(332, y - 24, f"measured {share:.1%}", "faint", "end")
        for j, other in enumerate((*words[:3], word)):
            drawing.node(
                (50 + 80 * j, y), (68, 24), other, color if j == 3 else "end"
            )
    drawing.words(WIDTH / 2, 286, "In all three, the model must predict “hairy”.", "bold")
    drawing.words(WIDTH / 2, 310, f"measured: {int(chosen.sum()):,} chosen tokens", "faint")
    return drawing


PICTURES = (bert_input, bert_heads, masking)
