"""Both forms of the tokenizers' ops, tensorflow-text's and core, give the same tokens and spans."""

import io
import random
import unicodedata

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from checks import says

from keras_transformers.dependencies import text_library
from keras_transformers.tokenizers import SentencePieceTokenizer, WordPieceTokenizer
from keras_transformers.tokenizers.text_ops import ops_in_use, using_ops
from keras_transformers.tokenizers.text_ops.core import utf8
from keras_transformers.tokenizers.text_ops.forms import sentence_pieces, word_pieces

ENGLISH = [
    "Two young, White males are outside near many bushes.",
    "Several men in hard hats are operating a giant pulley system.",
    "A little girl climbing into a wooden playhouse, hahaha, aaaa 000 ......",
    "A man in a blue shirt is standing on a ladder cleaning a window.",
] * 12
VOCABULARY = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "##", "##a##", "中", "##中", "!", ".", "'"),
    *("a", "b", "e", "é", "##a", "##b", "##e", "##é", "ab", "##ab", "aba", "good", "##s", "ᄒ"),
    *("##ᅡ", "##ᆫ", "z" * 100, "한", "##글"),
]
ODD = [
    *(" ", "  ", "\t", "\n", ".", ",", "-", "'", "[", "]", "#", "中", "國", "한글", "é", "É", "ß"),
    *("ﬁ", "\u0301", "\u0300", "\u200b", "\ufffd", "\x00", "\x01", "▁", "▁▁", "\u00a8", "½", "№"),
    *("a", "b", "aba", "good", "##s", "[SEP]", "</s>", "<0x41>", "hahaha", "aaa", "a man", "<sep>"),
    *("<sep", "z" * 100, "z" * 101, "A ladder", "X"),
]
BYTES = b"a \xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80\xed\xa0\xff.\xe2\x96\x81"

needs_both = pytest.mark.skipif(
    text_library.tensorflow_text() is None, reason="needs tensorflow-text: see setup.cfg"
)


def odd_texts(count):
    """Texts of what tokenizers treat differently, and bytes that are often not UTF-8."""
    generator = random.Random(5)
    texts = ["".join(generator.choices(ODD, k=generator.randint(0, 12))) for _ in range(count)]
    raw = [bytes(generator.choices(BYTES, k=generator.randint(0, 9))) for _ in range(count)]
    return ["", " ", "▁", "\x01", *texts, *raw]


def both(forms, method, argument):
    """The results of a method of both forms, for the same argument, in graphs."""
    results = []
    for ops in ("tensorflow-text", "core"):
        with using_ops(ops):
            results.append(tf.function(getattr(forms(), method), autograph=False)(argument))
    return results


def assert_same_tokens(forms, texts):
    library, core = both(forms, "tokenize_with_offsets", tf.constant(texts))
    for text, *rows in zip(texts, *(part.to_list() for part in (*library, *core)), strict=True):
        assert rows[:3] == rows[3:], repr(text)


@pytest.mark.slow
@needs_both
@pytest.mark.parametrize("lowercase", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_word_pieces_are_the_same_for_every_character(lowercase):
    forms = word_pieces(VOCABULARY, unknown_token="[UNK]", lowercase=lowercase)
    characters = [
        character
        for character in map(chr, range(0x110000))
        if unicodedata.category(character) not in ("Cn", "Co", "Cs")
    ]
    words = [f"a{character}b e{character}\u0301 " for character in characters]
    lines = ["".join(words[at : at + 64]) for at in range(0, len(words), 64)]
    private = ["a\ue000b \U000f0000a \U0010fffdb\uf8ff"]
    assert_same_tokens(forms, [*lines, *private, *odd_texts(500)])


@needs_both
def test_words_alone_are_split_the_same():
    forms = word_pieces(VOCABULARY, unknown_token="[UNK]", lowercase=None)
    words = sorted({w for text in odd_texts(200) if isinstance(text, str) for w in text.split()})
    library, core = both(forms, "encode", tf.constant([*words, "##a##", "##", "a" * 100]))
    for mine, theirs in zip(core, library, strict=True):
        assert mine.to_list() == theirs.to_list()


def learned(**options):
    """A small SentencePiece model."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(ENGLISH),
        model_writer=model,
        hard_vocab_limit=False,
        minloglevel=2,
        **{"vocab_size": 380, "character_coverage": 0.99, **options},
    )
    return model.getvalue()


SYMBOLS = {"user_defined_symbols": ["<sep>", "haha", "aaa", "é", "n a"]}
slow = pytest.mark.slow


@pytest.mark.one_case
@needs_both
@pytest.mark.parametrize(
    "options",
    [
        {"model_type": "unigram", **SYMBOLS},
        {"model_type": "bpe", "byte_fallback": True},
        pytest.param({"model_type": "unigram", "byte_fallback": True}, marks=slow),
        pytest.param({"model_type": "bpe", **SYMBOLS}, marks=slow),
        pytest.param(
            {"model_type": "unigram", "remove_extra_whitespaces": False, "unk_surface": "?"},
            marks=slow,
        ),
        pytest.param(
            {
                "model_type": "bpe",
                "normalization_rule_name": "identity",
                "add_dummy_prefix": False,
                "remove_extra_whitespaces": False,
                "split_by_whitespace": False,
            },
            marks=slow,
        ),
        pytest.param({"model_type": "char", "byte_fallback": True, **SYMBOLS}, marks=slow),
    ],
    ids=lambda options: "-".join(map(str, options)),
)
def test_sentence_pieces_are_the_same(options):
    forms = sentence_pieces(learned(**options))
    # Sums of long texts are float32, whose rounding chooses between pieces.
    longs = [" ".join(ENGLISH[:40]), "aaaa" * 300, "haha " * 200]
    assert_same_tokens(forms, [*ENGLISH[:4], *longs, *odd_texts(500)])
    generator = random.Random(3)
    with using_ops("core"):
        size = forms().size
    # Also special tokens, and bytes that are no characters.
    ids = [[generator.randrange(size) for _ in range(generator.randint(0, 9))] for _ in range(999)]
    ids += [generator.choices(range(20), k=generator.randint(0, 6)) for _ in range(500)]
    library, core = both(forms, "detokenize", tf.ragged.constant(ids, tf.int32))
    assert core.numpy().tolist() == library.numpy().tolist()
    library, core = both(forms, "id_to_string", tf.range(size))
    assert core.numpy().tolist() == library.numpy().tolist()


def test_utf8_is_decoded_as_in_python():
    texts = [text for text in odd_texts(300) if isinstance(text, bytes)]
    for raw, text in zip(texts, utf8.repaired(tf.constant(texts)).numpy(), strict=True):
        expected = "".join(
            raw[at:end].decode() if good else "\ufffd" for at, end, good in python_characters(raw)
        )
        assert text.decode() == expected, raw


def python_characters(raw):
    at = 0
    while at < len(raw):
        for end in range(at + 1, min(at + 4, len(raw)) + 1):
            try:
                raw[at:end].decode()
            except UnicodeDecodeError:
                continue
            yield at, end, True
            break
        else:
            end = at + 1
            yield at, end, False
        at = end


# --- the choice ------------------------------------------------------------------------------


def test_without_tensorflow_text_the_core_form_is_used(monkeypatch):
    monkeypatch.setattr(
        "keras_transformers.tokenizers.text_ops.forms.tensorflow_text", lambda: None
    )
    assert ops_in_use() == "core"
    ids = WordPieceTokenizer(VOCABULARY).tokenize(["A good BE!"])
    assert [VOCABULARY[i] for i in ids.values] == ["a", "good", "b", "##e", "!"]
    with pytest.raises(ValueError, match="tensorflow-text") as caught, using_ops("tensorflow-text"):
        pass
    assert says(str(caught.value), "ops='tensorflow-text' ... missing ... ops='core'")


def test_a_library_that_does_not_load_is_missing(monkeypatch, tmp_path, caplog):
    package = tmp_path / "tensorflow_text" / "python" / "ops"
    package.mkdir(parents=True)
    (tmp_path / "tensorflow_text" / "__init__.py").write_text("")
    (package / "_broken.so").write_bytes(b"no library")
    spec = type("Spec", (), {"origin": str(tmp_path / "tensorflow_text" / "__init__.py")})
    monkeypatch.setattr(text_library.importlib.util, "find_spec", lambda name: spec)
    assert (
        text_library.tensorflow_text.__wrapped__.__globals__["register_ops"].__wrapped__() is False
    )
    assert says(caplog.text, f"TensorFlow {tf.__version__} ... _broken.so ... install")


def test_there_are_two_choices():
    with (
        pytest.raises(ValueError, match="ops='fast'.*'tensorflow-text', 'core'"),
        using_ops("fast"),
    ):
        pass


def test_a_model_that_needs_more_says_which_op(tmp_path):
    file = tmp_path / "words.model"
    file.write_bytes(learned(model_type="word", vocab_size=40))
    with pytest.raises(ValueError, match="SentencepieceTokenizeOp") as caught, using_ops("core"):
        SentencePieceTokenizer(file)
    assert says(str(caught.value), f"{file} ... model_type WORD ... tensorflow-text ... ops='core'")


def test_ids_outside_the_vocabulary_are_refused():
    forms = sentence_pieces(learned(model_type="bpe"))
    with using_ops("core"), pytest.raises(tf.errors.OpError, match="100000"):
        forms().detokenize(tf.ragged.constant([[100_000]], np.int32))
