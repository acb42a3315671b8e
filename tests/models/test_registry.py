import importlib
import inspect
import json
import pkgutil
import runpy
from pathlib import Path

import pytest

import keras_transformers as kt
from keras_transformers import models
from keras_transformers.cli.models_table import models_json, models_page
from keras_transformers.families.bert import model as bert
from keras_transformers.families.transformer import model as transformer
from keras_transformers.heads import pretraining_parameters
from keras_transformers.inspection import agrees_with_figure
from keras_transformers.models.anatomy import anatomy
from keras_transformers.models.entry import named_factory
from keras_transformers.models.registry import all_entries, entry

# Published or computed by other implementations, not read from the registry.
# BERT at V = 30,522: encoder with pooler, and with both pretraining heads.
BERT = {
    "bert_base": (109_482_240, 110_106_428),
    "bert_large": (335_141_888, 336_226_108),
    "bert_tiny": (4_385_920, 4_433_468),
    "bert_mini": (11_170_560, 11_267_900),
    "bert_small": (28_763_648, 29_058_876),
    "bert_medium": (41_373_184, 41_668_412),
}
# Likewise, the 24 compact ones by layers and width.
COMPACT = {
    (2, 128): (4_385_920, 4_433_468),
    (2, 256): (9_591_040, 9_688_380),
    (2, 512): (22_458_880, 22_754_108),
    (2, 768): (38_603_520, 39_227_708),
    (4, 128): (4_782_464, 4_830_012),
    (4, 256): (11_170_560, 11_267_900),
    (4, 512): (28_763_648, 29_058_876),
    (4, 768): (52_779_264, 53_403_452),
    (6, 128): (5_179_008, 5_226_556),
    (6, 256): (12_750_080, 12_847_420),
    (6, 512): (35_068_416, 35_363_644),
    (6, 768): (66_955_008, 67_579_196),
    (8, 128): (5_575_552, 5_623_100),
    (8, 256): (14_329_600, 14_426_940),
    (8, 512): (41_373_184, 41_668_412),
    (8, 768): (81_130_752, 81_754_940),
    (10, 128): (5_972_096, 6_019_644),
    (10, 256): (15_909_120, 16_006_460),
    (10, 512): (47_677_952, 47_973_180),
    (10, 768): (95_306_496, 95_930_684),
    (12, 128): (6_368_640, 6_416_188),
    (12, 256): (17_488_640, 17_585_980),
    (12, 512): (53_982_720, 54_277_948),
    (12, 768): (109_482_240, 110_106_428),
}
# V = 37,000, one shared matrix, attention biases, post-norm.
TRANSFORMER = {
    "transformer_base": 63_082_496,
    "transformer_big": 214_245_376,
    "transformer_tiny": 6_061_056,
}
# The recurrent families; test_seq2seq.py and test_elmo.py count their parts.
RECURRENT = {
    "rnnsearch_50": 80_441_000,
    "luong_global": 221_082_000,
    "seq2seq_multi30k": 5_701_024,
    "seq2seq_multi30k_no_attention": 6_421_920,
    "elmo_original": 93_600_864,
    "elmo_medium": 28_027_744,
    "elmo_small": 13_593_312,
}
# 224 x 224 RGB images; with class token, positions and last norm, without a head.
VIT = {
    "vit_tiny16": 5_524_416,
    "vit_small16": 21_665_664,
    "vit_b16": 85_798_656,
    "vit_b32": 87_455_232,
    "vit_l16": 303_301_632,
    "vit_l32": 305_510_400,
    "vit_h14": 630_764_800,
}
# 2,100,000 rows of 100, and 10,100,000 of 10; tests/models/test_fasttext.py counts the classifiers.
FASTTEXT = {"fasttext_base": 210_000_000, "fasttext_10": 101_000_000}
# Embeddings and logits share one matrix.
GPT = {
    "gpt_base": 116_534_784,
    "gpt2_small": 124_439_808,
    "gpt2_medium": 354_823_168,
    "gpt2_large": 774_030_080,
    "gpt2_xl": 1_557_611_200,
}
COUNTS = (
    {name: counts[0] for name, counts in BERT.items()}
    | TRANSFORMER
    | RECURRENT
    | VIT
    | FASTTEXT
    | GPT
)
# Built in every run, with fewer layers and rows: some of each family. The slow tests build all.
BUILT = {
    "bert_tiny": {},
    "transformer_tiny": {"num_encoder_layers": 1, "num_decoder_layers": 2},
    "rnnsearch_50": {"vocabulary_size": 1000},
    "luong_global": {"vocabulary_size": 1000, "num_encoder_layers": 2, "num_decoder_layers": 2},
    "seq2seq_multi30k": {},
    "seq2seq_multi30k_no_attention": {},
    "elmo_small": {},
    "vit_tiny16": {"num_layers": 2},
    "fasttext_10": {"vocabulary_size": 1000},
    "gpt_base": {"vocabulary_size": 1000, "num_layers": 2},
    "gpt2_small": {"vocabulary_size": 1000, "num_layers": 1},
}
PAPERS = (
    "Devlin",
    "Turc",
    "Vaswani",
    "Bahdanau",
    "Luong",
    "Cho",
    "Peters",
    "Dosovitskiy",
    "Touvron",
    "Joulin",
    "Radford",
)
MOST_BUILT = 1_600_000_000  # more do not fit into 8 GB
# A family can keep its counts in its own file, counts/<family>.py.
for _family in sorted((Path(__file__).parent / "counts").glob("*.py")):
    _found = runpy.run_path(str(_family))
    COUNTS |= _found["COUNTS"]
    BUILT |= _found["BUILT"]
    PAPERS += _found["PAPERS"]


def test_every_model_is_listed_here_and_registered():
    """Fails if a model is added without an independent count, or a factory without an entry."""
    assert set(kt.list_models()) == set(COUNTS)
    assert set(bert.SIZES) == set(bert.MODELS)
    assert set(transformer.SIZES) == set(transformer.MODELS)


@pytest.mark.parametrize("name", BUILT)
def test_exact_count_built_and_by_arithmetic(name, zero_weights):
    assert kt.create_model(name, **BUILT[name]).count_params() == entry(name).count(**BUILT[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in COUNTS if COUNTS[name] < MOST_BUILT])
def test_exact_count_built(name, zero_weights):
    assert kt.create_model(name).count_params() == COUNTS[name]


@pytest.mark.parametrize("name", kt.list_models())
def test_exact_count_registered_and_by_arithmetic(name):
    found = entry(name)
    assert found.num_parameters == COUNTS[name]
    assert found.count() == COUNTS[name]
    assert found.paper.startswith(PAPERS)


@pytest.mark.parametrize("size", COMPACT)
def test_exact_counts_of_the_compact_sizes_of_bert(size):
    shape = bert.compact_size(*size)
    assert shape["num_heads"] * 64 == shape["hidden_dim"]
    del shape["num_heads"]
    heads = pretraining_parameters(vocabulary_size=30522, hidden_dim=size[1])
    count = bert.num_parameters(**shape)
    assert (count, count + heads) == COMPACT[size]


def test_compact_sizes_have_names_without_being_listed():
    assert "bert_l4_h128" not in kt.list_models()
    assert entry("bert_l4_h128").num_parameters == COMPACT[4, 128][0]
    model = kt.create_model("bert_l4_h128", vocabulary_size=9, max_sequence_length=8)
    assert (model.name, len(anatomy(model).blocks)) == ("bert_l4_h128", 4)
    with pytest.raises(ValueError, match="'bert_l3_h128' is not registered"):
        kt.create_model("bert_l3_h128")


def test_there_are_no_other_compact_sizes():
    assert bert.compact_size(2, 128) == bert.SIZES["bert_tiny"]
    with pytest.raises(ValueError, match="num_layers=3, hidden_dim=128: .* 2, 4, 6, 8, 10 or 12"):
        bert.compact_size(3, 128)


@pytest.mark.parametrize("name", BERT)
def test_count_with_both_pretraining_heads(name):
    heads = pretraining_parameters(vocabulary_size=30522, hidden_dim=entry(name).symbols["H"])
    assert BERT[name][0] + heads == BERT[name][1]


@pytest.mark.parametrize(
    ("size", "norm_position", "use_attention_bias", "expected"),
    [
        ("transformer_base", "post", True, 63_082_496),
        ("transformer_base", "pre", True, 63_084_544),
        ("transformer_base", "post", False, 63_045_632),
        ("transformer_base", "pre", False, 63_047_680),
        ("transformer_big", "pre", True, 214_249_472),
        ("transformer_big", "post", False, 214_171_648),
        ("transformer_big", "pre", False, 214_175_744),
    ],
)
def test_transformer_counts_in_all_four_forms(size, norm_position, use_attention_bias, expected):
    form = {"norm_position": norm_position, "use_attention_bias": use_attention_bias}
    assert entry(size).count(**form) == expected


def test_transformer_counts_untied_and_with_an_output_bias():
    assert entry("transformer_base").count(weight_tying="none") == 100_970_496
    assert entry("transformer_big").count(weight_tying="none") == 290_021_376
    assert entry("transformer_base").count(use_output_bias=True) == 63_082_496 + 37_000
    assert entry("transformer_base").count(vocabulary_size=32_768) == 60_915_712


@pytest.mark.parametrize(
    "form",
    [
        {"norm_position": "pre", "weight_tying": "none"},
        {"use_attention_bias": False, "use_output_bias": True},
        {"norm_position": "pre", "use_attention_bias": False, "weight_tying": "decoder"},
    ],
)
def test_a_small_transformer_has_the_count_of_its_form(form):
    layers = {"num_encoder_layers": 1, "num_decoder_layers": 2}
    widths = {"num_heads": 2, "hidden_dim": 8, "intermediate_dim": 6}
    size = {"vocabulary_size": 11, **widths, **layers, **form}
    built = transformer.transformer(**size)
    assert built.count_params() == transformer.num_parameters(**size)


def test_a_factory_shows_the_builders_arguments_with_its_own_defaults():
    for name, found in all_entries().items():
        parameters = inspect.signature(found.factory).parameters
        assert {each.kind for each in parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}
        assert all(each.default is not inspect.Parameter.empty for each in parameters.values())
        assert parameters["name"].default == found.factory.__name__ == name
        assert "with random weights.\n\n" in found.factory.__doc__
        assert "\nArgs:\n" in found.factory.__doc__
    parameters = inspect.signature(kt.bert_base).parameters
    assert list(parameters) == list(inspect.signature(bert.bert).parameters)
    assert parameters["hidden_dim"].default == 768
    assert kt.bert_tiny(num_segments=3, name="small").count_params() == 4_385_920 + 128


def test_a_factory_needs_a_default_for_every_argument():
    with pytest.raises(TypeError, match="default.*num_layers, num_heads.*bert"):
        named_factory(
            bert.bert, "small", {"vocabulary_size": 9, "hidden_dim": 8}, summary="A small BERT."
        )
    with pytest.raises(TypeError, match="unexpected keyword argument 'depth'"):
        named_factory(bert.bert, "small", {"depth": 2}, summary="A small BERT.")


def test_no_builder_has_the_name_of_a_size():
    builders = {
        name
        for family in pkgutil.walk_packages(models.__path__, f"{models.__name__}.")
        for name, found in vars(importlib.import_module(family.name)).items()
        if inspect.isfunction(found)
    }
    assert {"bert", "gpt", "fasttext", "transformer", "vit", "elmo", "seq2seq"} <= builders
    assert builders.isdisjoint(all_entries())


def test_the_papers_figures_agree_or_say_why_not():
    for name, found in all_entries().items():
        if found.paper_figure and not found.paper_note:
            assert agrees_with_figure(found.num_parameters, found.paper_figure), name
    assert not agrees_with_figure(63_082_496, "65M")
    assert entry("transformer_base").paper_note


def test_the_table_in_the_docs_is_the_registrys():
    page = Path(__file__).parents[2] / "docs" / "models.md"
    assert page.read_text("utf-8") == models_page(), "run `make docs-tables`"
    rows = [row.split(" | ") for row in models_page().splitlines() if row.startswith("| `")]
    assert {row[0].strip("| `"): int(row[3].replace(",", "")) for row in rows} == COUNTS
    (large,) = (row for row in rows if row[0] == "| `bert_large`")
    assert large[1:5] == ["bert", "V 30,522, P 512, H 1,024, I 4,096", "335,141,888", "340M"]


def test_the_table_of_the_command_is_the_registrys():
    table = Path(models.__file__).parents[1] / "cli" / "models.json"
    assert json.loads(table.read_text("utf-8")) == models_json(), "run `make docs-tables`"


def test_patterns_select_names():
    assert kt.list_models("bert_m*") == ["bert_mini", "bert_medium"]
    assert kt.list_models("nothing*") == []


def test_an_unknown_name_or_argument_is_refused():
    with pytest.raises(ValueError, match="'bert_bsae'.*did.*bert_base"):
        kt.create_model("bert_bsae")
    with pytest.raises(ValueError, match="bert_tiny.*'vocab_size';.*takes"):
        kt.create_model("bert_tiny", vocab_size=3)
    with pytest.raises(TypeError, match=r"bert_tiny\(\) got an unexp.*'vocab_size'; it takes"):
        kt.bert_tiny(vocab_size=3)
    with pytest.raises(AttributeError, match="no attribute 'bert_bsae'"):
        _ = kt.bert_bsae
