import importlib
import inspect
import json
import pkgutil
import runpy
from pathlib import Path

import pytest

import keras_transformers as kt
from keras_transformers import families
from keras_transformers.cli.models_table import models_json, models_page
from keras_transformers.families.bert import model as bert
from keras_transformers.families.transformer import model as transformer
from keras_transformers.heads import pretraining_parameters
from keras_transformers.inspection import agrees_with_figure
from keras_transformers.models.anatomy import anatomy
from keras_transformers.models.entry import named_factory
from keras_transformers.models.registry import all_entries, entry

MOST_BUILT = 1_600_000_000  # more do not fit into 8 GB
# Counts that are published or computed by other implementations, not read from the registry, and
# the models to build in every run: some of each family, with fewer layers and rows.
_FAMILIES = {
    path.stem: runpy.run_path(str(path))
    for path in sorted((Path(__file__).parent / "counts").glob("*.py"))
}
COUNTS = {name: n for family in _FAMILIES.values() for name, n in family["COUNTS"].items()}
BUILT = {name: small for family in _FAMILIES.values() for name, small in family["BUILT"].items()}
PAPERS = tuple(paper for family in _FAMILIES.values() for paper in family["PAPERS"])
BERT, COMPACT = _FAMILIES["bert"]["NAMED"], _FAMILIES["bert"]["COMPACT"]


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
        ("transformer_base", "pre", True, 63_084_544),
        ("transformer_base", "post", False, 63_045_632),
        ("transformer_base", "pre", False, 63_047_680),
        ("transformer_big", "pre", True, 214_249_472),
        ("transformer_big", "post", False, 214_171_648),
        ("transformer_big", "pre", False, 214_175_744),
    ],
)
def test_transformer_counts_in_its_other_forms(size, norm_position, use_attention_bias, expected):
    form = {"norm_position": norm_position, "use_attention_bias": use_attention_bias}
    assert entry(size).count(**form) == expected


def test_transformer_counts_untied_and_with_an_output_bias():
    assert entry("transformer_base").count(weight_tying="none") == 100_970_496
    assert entry("transformer_big").count(weight_tying="none") == 290_021_376
    tied = COUNTS["transformer_base"]
    assert entry("transformer_base").count(use_output_bias=True) == tied + 37_000
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
    assert kt.bert_tiny(num_segments=3, name="small").count_params() == COUNTS["bert_tiny"] + 128


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
        for family in pkgutil.walk_packages(families.__path__, f"{families.__name__}.")
        for name, found in vars(importlib.import_module(family.name)).items()
        if inspect.isfunction(found)
    }
    assert {"bert", "gpt", "fasttext", "transformer", "vit", "elmo", "seq2seq"} <= builders
    assert builders.isdisjoint(all_entries())


def test_the_papers_figures_agree_or_say_why_not():
    for name, found in all_entries().items():
        if found.paper_figure and not found.paper_note:
            assert agrees_with_figure(found.num_parameters, found.paper_figure), name
    assert not agrees_with_figure(COUNTS["transformer_base"], "65M")
    assert entry("transformer_base").paper_note


def test_the_table_in_the_docs_is_the_registrys():
    page = Path(__file__).parents[2] / "docs" / "models.md"
    assert page.read_text("utf-8") == models_page(), "run `make docs-tables`"
    rows = [row.split(" | ") for row in models_page().splitlines() if row.startswith("| `")]
    assert {row[0].strip("| `"): int(row[3].replace(",", "")) for row in rows} == COUNTS
    (large,) = (row for row in rows if row[0] == "| `bert_large`")
    assert large[1:3] == ["bert", "V 30,522, P 512, H 1,024, I 4,096"]
    assert large[4] == "340M"


def test_the_table_of_the_command_is_the_registrys():
    table = Path(kt.families.__file__).parents[1] / "cli" / "models.json"
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
