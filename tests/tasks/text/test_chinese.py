"""Chinese as bert-base-chinese reads it: each character is a token. From vocabulary to export."""

# ruff: noqa: RUF001 (Chinese punctuation is meant)

import keras
import numpy as np
import pytest
import tensorflow as tf
from checks import compile_toy
from tokenizers import BertWordPieceTokenizer

import keras_transformers as kt
from keras_transformers.data.text import Sentences, TaggedBatches
from keras_transformers.families.bert.model import bert
from keras_transformers.tokenizers import WordPieceTokenizer
from keras_transformers.training import TokenCrossentropy

SPECIAL = ["[PAD]", *(f"[unused{number}]" for number in range(1, 4)), "[UNK]", "[CLS]", "[SEP]"]
CHARACTERS = (
    "一不中个京人他你作北去友喜国在坏大好学工常很我握是朋来欢海演片电的看说这部非面，。！？：《》"
)
# bert-base-chinese's file also has each character as the continuation of a word, without use.
VOCABULARY = [
    *SPECIAL,
    "[MASK]",
    *CHARACTERS,
    *(f"##{character}" for character in "京人北海"),
    *("tensor", "##flow", "nba", "a", "##b", "film", "##s", "2", "##0", "##1", "##3", ".", "-"),
]
TEXTS = [
    "我在北京看电影。",  # 影 is unknown
    "这部电片很好！非常好看",
    "我喜欢TensorFlow和NBA，2013年",
    "A film《北海》films.",
    "北京ab北京",
    "北 京\u3000海",
    "ＮＢＡ：你好？",  # full-width letters are not folded
    "𠀀好",  # beyond the basic plane
    "カタカナ、한국",
    "",
]


@pytest.fixture(scope="module")
def tokenizer():
    return WordPieceTokenizer(VOCABULARY)


def test_ids_are_those_of_the_reference(tokenizer):
    reference = BertWordPieceTokenizer({token: i for i, token in enumerate(VOCABULARY)})
    found = tokenizer.tokenize(TEXTS).to_list()
    for text, ids in zip(TEXTS, found, strict=True):
        assert ids == reference.encode(text, add_special_tokens=False).ids, text
    tokens = [VOCABULARY[token_id] for token_id in found[2]]
    expected = ["我", "喜", "欢", "tensor", "##flow", "[UNK]", "nba", "，"]
    assert tokens == [*expected, "2", "##0", "##1", "##3", "[UNK]"]


def test_offsets_count_characters_and_bytes(tokenizer):
    ids, starts, ends = tokenizer.tokenize_with_offsets(["去 北京ab"])
    assert [VOCABULARY[i] for i in ids.to_list()[0]] == ["去", "北", "京", "a", "##b"]
    spans = zip(starts.to_list()[0], ends.to_list()[0], strict=True)
    assert ["去 北京ab".encode()[start:end].decode() for start, end in spans] == [*"去北京ab"]


def test_a_vocabulary_is_learned_from_characters(tmp_path):
    (tmp_path / "text").write_text("\n".join(["北京很大。", "我在北京工作 films"] * 3), "utf-8")
    learned = WordPieceTokenizer.train(
        [tmp_path / "text"], tmp_path / "vocab.txt", vocabulary_size=60
    )
    words = [token for token in learned.vocabulary if not token.startswith("[")]
    assert {*"北京很大。我在工作"} <= {*words}
    assert not [word for word in words if len(word.removeprefix("##")) > 1 and "北" in word]
    tokens = learned.tokenize(["北京films"]).to_list()[0]
    assert [learned.vocabulary[token] for token in tokens] == ["北", "京", "films"]


def test_every_character_of_a_large_alphabet_gets_a_token(tmp_path):
    """Chinese text has thousands of characters; 99.95 % of the text is in the vocabulary."""
    often = "".join(chr(0x4E00 + number) for number in range(1500))
    lines = [*[often] * 3, "\u9fa0"]  # the last character is 1 of 4,501
    (tmp_path / "text").write_text("\n".join(lines), "utf-8")
    for limit, expected in ((None, 1500), (1000, 1000)):
        learned = WordPieceTokenizer.train(
            [tmp_path / "text"],
            tmp_path / f"{expected}.txt",
            vocabulary_size=2000,
            max_characters=limit,
        )
        assert learned.vocabulary_size == len(SPECIAL) - 3 + 1 + expected


@pytest.mark.slow
def test_reviews_to_answers(tmp_path):
    """From Chinese strings alone: a vocabulary, a classifier, an export that answers."""
    keras.utils.set_random_seed(0)
    texts = [f"{one}{how}{word}。" for one in SUBJECTS for how in ("很", "非常") for word in "好坏"]
    labels = ["好评" if "好" in text else "差评" for text in texts]
    (tmp_path / "text").write_text("\n".join(texts), "utf-8")
    tokenizer = WordPieceTokenizer.train(
        [tmp_path / "text"], tmp_path / "vocab.txt", vocabulary_size=100
    )
    model = kt.heads.classifier(encoder(tokenizer.vocabulary_size), 2, dropout=0.0)
    classify = kt.pipelines.TextClassifier(model, tokenizer, ["差评", "好评"])
    kt.fit(classify, (texts, labels), epochs=15, batch_size=10, learning_rate=5e-3)
    folder = kt.export(classify, tmp_path / "export", check=False)
    served = tf.saved_model.load(str(folder)).signatures["serving_default"]
    unseen = ["他很好", "海非常坏！", "NBA是好的"]
    answers = served(text=tf.constant(unseen))["label"].numpy()
    assert [answer.decode() for answer in answers] == ["好评", "差评", "好评"]


def encoder(vocabulary_size):
    return bert(
        vocabulary_size=vocabulary_size,
        num_layers=1,
        num_heads=2,
        hidden_dim=32,
        max_sequence_length=24,
        dropout=0.0,
        attention_dropout=0.0,
    )


def fitted(model, batches, epochs):
    compile_toy(model, keras.optimizers.Adam(5e-3), {"logits": TokenCrossentropy()})
    model.fit(
        batches.dataset(), steps_per_epoch=len(batches), epochs=epochs, shuffle=False, verbose=0
    )


SUBJECTS = ["这部电片", "你", "我的工作", "北京", "film"]


@pytest.mark.slow
def test_a_tagger_from_words_to_an_export(tokenizer, tmp_path):
    """Each character is a word with a label; places in unseen texts are found."""
    keras.utils.set_random_seed(0)
    labels = ["O", "B-LOC", "I-LOC"]
    rows = [
        [who, verb, *place, *end]
        for who in "我你他"
        for verb in "在去"
        for place in ("北京", "海")
        for end in (["。"], ["看", "film"])
    ]
    unseen = rows.pop()  # "他去海看film"
    of_place = {"北": "B-LOC", "京": "I-LOC", "海": "B-LOC"}
    sentences = Sentences(rows, [[of_place.get(word, "O") for word in row] for row in rows])
    model = kt.heads.tagger(encoder(len(VOCABULARY)), 3, dropout=0.0)
    tag = kt.pipelines.Tagger(model, tokenizer, labels)
    fitted(model, TaggedBatches(sentences, tag, batch_size=12, seed=0), epochs=15)
    found = tag("".join(unseen))
    assert found.tokens == unseen == ["他", "去", "海", "看", "film"]
    assert found.labels == ["O", "O", "B-LOC", "O", "O"]
    assert (list(found.starts), list(found.ends)) == ([0, 1, 2, 3, 4], [1, 2, 3, 4, 8])
    folder = kt.export(tag, tmp_path, examples=["我在北京。", *TEXTS])
    served = tf.saved_model.load(str(folder)).signatures["serving_default"]
    answer = served(text=tf.constant(["你在海"]))
    assert [token.decode() for token in answer["tokens"].numpy()[0]] == ["你", "在", "海"]
    np.testing.assert_array_equal(answer["labels"].numpy()[0], [b"O", b"O", b"B-LOC"])
