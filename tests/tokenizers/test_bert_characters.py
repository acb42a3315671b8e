"""The tables behind WordPiece, compared with `tokenizers` character by character."""

import random

import numpy as np
import pytest
import tensorflow as tf
import tokenizers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from keras_transformers.files import read_lines
from keras_transformers.tokenizers import WordPieceTokenizer
from keras_transformers.tokenizers.normalization import bert_characters
from keras_transformers.tokenizers.normalization.double_array import double_array

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
# Letters of Unicode 16 and 17, which `tokenizers` before 0.22 does not lower-case.
NEW_CAPITALS = {
    chr(code)
    for first, last in ((0x1C89, 0x1C89), (0xA7CB, 0xA7DC), (0x10D50, 0x10D65), (0x16EA0, 0x16EB8))
    for code in range(first, last + 1)
    if tuple(map(int, tokenizers.__version__.split(".")[:2])) < (0, 22)
}
ALL = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
ALL = [character for character in ALL if character not in NEW_CAPITALS]
# Scripts, marks, symbols, compatibility forms and the ends of Chinese ranges.
ASSIGNED = [c for c in ALL if c < "\u3400" or "\ua000" <= c < "\uac10" or "\ud780" <= c < "\ue010"]
ASSIGNED += [c for c in ALL if "\uf8f0" <= c < "\U00012500" or "\U00016800" <= c < "\U00016ff0"]
ASSIGNED += [c for c in ALL if "\U0001b000" <= c < "\U00020010" or "\U0002b810" <= c < "\U0002b930"]
ASSIGNED += [c for c in ALL if "\U0002f7f0" <= c < "\U0002fa30" or "\U000e0000" <= c < "\U000e0200"]
# BERT reorders adjacent ones into canonical order.
MOVING = (
    *((0x8D4, 0x8E1), (0x1B44, 0x1B44), (0x1BAA, 0x1BAA), (0x1BF2, 0x1BF3), (0x1DFB, 0x1DFB)),
    *((0x302E, 0x302F), (0xA953, 0xA953), (0xA9C0, 0xA9C0), (0x111C0, 0x111C0)),
    *((0x11235, 0x11235), (0x1134D, 0x1134D), (0x11442, 0x11442), (0x11446, 0x11446)),
    *((0x116B6, 0x116B6), (0x11C3F, 0x11C3F), (0x1D165, 0x1D166), (0x1D16D, 0x1D172)),
    *((0x1E000, 0x1E006), (0x1E008, 0x1E018), (0x1E01B, 0x1E021), (0x1E023, 0x1E024)),
    *((0x1E026, 0x1E02A), (0x1E944, 0x1E94A)),
)


def hugging_face(vocabulary, lowercase):
    """The parts of transformers' BertTokenizer, without added tokens."""
    ids = {token: token_id for token_id, token in enumerate(vocabulary)}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


class Pair:
    """Both tokenizers, with a vocabulary in which every character has its own token."""

    def __init__(self, lowercase):
        characters = [c for c in ASSIGNED if c > " "]
        vocabulary = [*SPECIAL, *characters, *(f"##{c}" for c in characters)]
        self.lowercase = lowercase
        self.ours = WordPieceTokenizer(vocabulary, lowercase=lowercase)
        self.theirs = hugging_face(vocabulary, lowercase)

    def different(self, texts):
        """Texts whose ids differ."""
        found = []
        for start in range(0, len(texts), 50_000):
            part = texts[start : start + 50_000]
            expected = self.theirs.encode_batch_fast(part, add_special_tokens=False)
            ours = self.ours.tokenize(tf.constant(part)).to_list()
            found += [t for t, a, b in zip(part, ours, expected, strict=True) if a != b.ids]
        return found


@pytest.fixture(scope="module", params=[True, False], ids=["uncased", "cased"])
def pair(request):
    return Pair(request.param)


def test_the_characters_of_every_script(pair):
    assert pair.different([f"q{c}z" for c in ASSIGNED]) == []
    assert pair.different([f"1 {c}" for c in ASSIGNED]) == []


@pytest.mark.slow
@pytest.mark.parametrize("form", ["q{0}z", "{0}", "{0}{0}", "1{0}{0} b"])
def test_every_character_of_unicode(pair, form):
    assert pair.different([form.format(c) for c in ALL]) == []


def random_texts(count, seed):
    """Mostly short texts, each a mixture of a few scripts."""
    generator = random.Random(seed)
    blocks = [(0x20, 0x7F), (0x41, 0x7B), (0xA0, 0x250), (0x300, 0x370), (0x370, 0x600)]
    blocks += [(0x600, 0x1100), (0x1100, 0x3400), (0xAC00, 0xD7A4), (0x4E00, 0x4F00)]
    blocks += [(0xF900, 0x10000), (0x1F000, 0x20000)]
    pools = [[chr(code) for code in range(*block)] for block in blocks]
    pools += [ALL, [" ", "\u200d", "\ufe0f", "##", "#", "[SEP]", "[", "]", "é", "\ufffd"]]
    return [
        "".join(generator.choice(generator.choice(chosen)) for _ in range(length))
        for chosen, length in (
            (generator.sample(pools, generator.randint(1, 4)), generator.choice(lengths))
            for lengths in generator.choices([(3, 8, 30), (99, 110, 300)], [19, 1], k=count)
        )
    ]


def test_random_mixtures_of_scripts(pair):
    assert pair.different(random_texts(4000, seed=0)) == []


@pytest.mark.slow
def test_many_random_mixtures_of_scripts(pair):
    for seed in range(1, 21):
        assert pair.different(random_texts(5000, seed=seed)) == []


def test_words_of_a_hundred_characters_and_more(pair):
    texts = []
    for letter in ("a", "é", "я", "ก", "한", "\U0001f600", "e\u0301", "\u200ba", "\U0002b820"):
        for count in (33, 34, 50, 51, 99, 100, 101, 200, 401):
            word = letter * count
            for form in ("{0}", "b {0} c", "中{0}中", "b.{0}!{0}", "\u3001{0}\u2026b", "b{0}"):
                texts.append(form.format(word))
    assert pair.different(texts) == []


def test_bytes_that_are_no_utf8(pair):
    generator = random.Random(3)
    pieces = [bytes([byte]) for byte in range(0x80, 0x100)]
    pieces += [c.encode() for c in "a é中😀\u0301\ufffd"] + [b"\xe4\xb8", b"\xf0\x9f\x98", b"\xc3"]
    texts = [b"".join(generator.choices(pieces, k=12)) for _ in range(3000)]
    decoded = [text.decode(errors="replace") for text in texts]
    assert pair.different(decoded) == []
    assert pair.ours.tokenize(texts).to_list() == pair.ours.tokenize(decoded).to_list()
    assert pair.ours.tokenize([b"a\xffb"]).to_list() == pair.ours.tokenize(["ab"]).to_list()


def test_only_the_order_of_a_few_marks_differs(pair):
    """The one remaining difference, documented in `bert_characters`."""
    moving = [chr(code) for first, last in MOVING for code in range(first, last + 1)]
    assert len(moving) == 83
    texts = [f"q{a}{b}" for a in moving for b in moving]
    different = pair.different(texts)
    if not pair.lowercase:
        assert different == []
        return
    assert len(different) == 1603
    assert {c for text in different for c in text[1:]} == set(moving)
    # The same marks in another order.
    normal = [normalizers.BertNormalizer().normalize_str(text) for text in different]
    assert all(text != other for text, other in zip(different, normal, strict=True))
    assert pair.ours.tokenize(normal).to_list() == [
        encoding.ids for encoding in pair.theirs.encode_batch(different, add_special_tokens=False)
    ]


def test_real_text(pair, data_dir, minilm_dir):
    vocabulary = (minilm_dir / "vocab.txt").read_text("utf-8").split("\n")[:-1]
    ours = WordPieceTokenizer(vocabulary, lowercase=pair.lowercase)
    theirs = hugging_face(vocabulary, pair.lowercase)
    for name in ("text/wikitext2.test.txt.gz", "multi30k/val.de.gz", "xquad/xquad.de.json.gz"):
        lines = list(read_lines(data_dir / name))[:2000]
        expected = theirs.encode_batch_fast(lines, add_special_tokens=False)
        assert ours.tokenize(lines).to_list() == [encoding.ids for encoding in expected]


def test_the_file_has_what_the_installed_tokenizers_do():
    """`make_bert_characters` wrote it; see `NEW_CAPITALS` for older versions."""
    with np.load(bert_characters.FILE) as stored:
        computed = bert_characters.tables()
        assert stored.keys() == computed.keys()
        for name, table in computed.items():
            if name != "uncased" or not NEW_CAPITALS:
                np.testing.assert_array_equal(stored[name], table)


def test_the_table_is_small():
    assert len(bert_characters.normalizer_model(lowercase=True)) < 300_000
    assert len(bert_characters.normalizer_model(lowercase=False)) < 60_000


# --- double arrays ---------------------------------------------------------------------------


def look_up(units, key):
    """Looks up a key like DartsCloneTrieWrapper in github.com/tensorflow/text."""
    position, unit = 0, int(units[0])
    for label in key:
        position ^= unit >> 10 ^ label
        unit = int(units[position])
        if unit & 0x800000FF != label:
            return None
    return int(units[position ^ unit >> 10]) & 0x7FFFFFFF if unit & 0x100 else None


@pytest.mark.parametrize("num_keys", [0, 1, 2, 30, 3000])
def test_a_double_array_finds_its_keys_and_no_others(num_keys):
    generator = random.Random(num_keys)
    keys = [generator.randbytes(generator.randint(1, 4)).replace(b"\0", b"\1") for _ in range(6000)]
    values = {key: generator.randrange(1 << generator.randint(1, 31)) for key in keys[:num_keys]}
    units = double_array(values)
    assert units.dtype == np.uint32
    assert len(units) % 256 == 0
    for key in keys:
        for end in range(1, len(key) + 1):
            assert look_up(units, key[:end]) == values.get(key[:end])


def test_equal_subtrees_are_stored_once():
    endings = [bytes([a, b]) for a in range(1, 40) for b in range(1, 40)]
    one, many = (
        len(double_array({bytes([start]) + ending: 7 for start in starts for ending in endings}))
        for starts in ([1], range(1, 30))
    )
    assert one == many == 256


@pytest.mark.parametrize("entry", [(b"", 1), (b"a\0b", 1), (b"a", 1 << 31), (b"a", -1)])
def test_what_a_double_array_cannot_store(entry):
    with pytest.raises(ValueError, match=r"cannot store -?\d+ .*key b"):
        double_array(dict([entry]))
