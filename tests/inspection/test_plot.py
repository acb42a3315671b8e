"""Pictures of models: what is in them, that nothing overlaps, and the one in the documents."""

import re
import shlex
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import keras
import pytest
import tiny
from checks import says

import keras_transformers as kt
from keras_transformers.cli import main as cli
from keras_transformers.inspection import model_blocks

ROOT = Path(__file__).parents[2]
TINY = {"num_heads": 2, "hidden_dim": 8, "intermediate_dim": 16}
SVG = "{http://www.w3.org/2000/svg}"


def bert():
    from keras_transformers.families.bert.model import bert

    return kt.heads.pretrainer(bert(vocabulary_size=20, num_layers=3, **TINY))


def transformer():
    from keras_transformers.families.transformer.model import transformer

    return transformer(vocabulary_size=20, num_encoder_layers=3, num_decoder_layers=2, **TINY)


def t5():
    from keras_transformers.families.t5.model import t5

    sizes = TINY | {"head_dim": 4}
    return t5(vocabulary_size=20, num_encoder_layers=2, num_decoder_layers=2, **sizes)


def vit():
    from keras_transformers.families.vit.model import vit

    return vit(patch_size=4, num_layers=2, image_size=8, **TINY)


def recurrent():

    return tiny.seq2seq(
        vocabulary_size=20,
        cell="gru",
        num_encoder_layers=1,
        num_decoder_layers=1,
        embedding_dim=8,
        hidden_dim=16,
    )


def elmo():
    from keras_transformers.families.elmo.model import elmo

    return elmo(
        filters=((1, 4), (2, 4)), num_highways=1, lstm_dim=8, projection_dim=4, num_layers=2
    )


MAKERS = (bert, transformer, t5, vit, recurrent, elmo)


@pytest.fixture(scope="module", params=MAKERS, ids=lambda maker: maker.__name__)
def model(request):
    return request.param()


def named(model, name):
    (found,) = [b for b in model_blocks(model) if (b.name, b.kind) == (name, "layer")]
    return found


def test_the_blocks_of_a_model_have_all_its_parameters(model):
    blocks = model_blocks(model)
    assert sum(block.count * block.num_parameters for block in blocks) == model.count_params()
    assert [block.name for block in blocks if block.kind == "output"] == list(model.output)


def test_equal_layers_in_a_row_are_one_block():
    block = named(bert(), "encoder_layer")
    assert (block.count, [part.name for part in block.parts]) == (
        3,
        ["self_attention", "feed_forward"],
    )
    attention, feed_forward = block.parts
    assert (attention.num_parameters, attention.sizes, attention.norm) == (
        4 * (8 * 8 + 8),
        "2 heads of 4",
        "post",
    )
    assert feed_forward.sizes == "8 → 16 → 8, gelu"
    inside = sum(part.num_parameters + part.norm_parameters for part in block.parts)
    assert inside == block.num_parameters


def test_layers_that_differ_or_are_used_elsewhere_stay_apart():
    tokens = keras.Input((4,), name="tokens")
    first = keras.layers.Dense(4, name="dense_0")(tokens)
    second = keras.layers.Dense(4, name="dense_1")(first)
    third = keras.layers.Dense(4, name="dense_2", activation="relu")(second)
    same = keras.layers.Dense(4, name="dense_3", activation="relu")(third)
    blocks = model_blocks(keras.Model(tokens, {"one": same, "two": first}))
    found = [(b.count, b.sizes) for b in blocks if b.kind == "layer"]
    assert found == [(1, "4 → 4"), (1, "4 → 4"), (2, "4 → 4, relu")]


def test_the_encoder_enters_the_decoder_by_its_cross_attention():
    model = transformer()
    blocks = model_blocks(model)
    decoder = named(model, "decoder_layer")
    ((join, part),) = decoder.joins
    assert (blocks[join].name, blocks[join].count, part) == ("encoder_layer", 3, "cross_attention")
    assert [b.is_shared for b in blocks if b.name == "token_embedding"] == [False, True, True]


def test_a_bias_of_scores_enters_by_the_first_attention():
    model = t5()
    joins = {model_blocks(model)[i].name: p for i, p in named(model, "decoder_layer").joins}
    assert joins == {
        "encoder_norm": "cross_attention",
        "decoder_position_bias": "self_attention",
    }


def boxes(svg):
    """The rectangles of blocks and of the model's inputs and outputs: x, y, width, height."""
    kinds = "x", "y", "width", "height"
    found = [[float(r.get(k)) for k in kinds] for r in svg.iter(f"{SVG}rect")][1:]
    inside = [
        any(other != box and x >= other[0] and x + w <= other[0] + other[2]
            and y >= other[1] and y + h <= other[1] + other[3] for other in found)
        for box in found
        for x, y, w, h in [box]
    ]  # fmt: skip
    return [box for box, is_part in zip(found, inside, strict=True) if not is_part]


def test_nothing_overlaps_or_leaves_the_picture(model, tmp_path):
    path = tmp_path / "model.svg"
    kt.inspection.plot(model, path)
    svg = ElementTree.parse(path).getroot()
    width, height = float(svg.get("width")), float(svg.get("height"))
    found = boxes(svg)
    assert len(found) == len(model_blocks(model))
    for index, (x, y, w, h) in enumerate(found):
        assert (x >= 0, y >= 0, x + w <= width, y + h <= height) == (True,) * 4
        for ox, oy, ow, oh in found[index + 1 :]:
            assert x + w < ox or ox + ow < x or y + h < oy or oy + oh < y
    for path in svg.iter(f"{SVG}path"):
        if "marker-end" in path.attrib:
            points = re.findall(r"[ML]([-\d.]+) ([-\d.]+)", path.get("d"))
            assert all(0 <= float(x) <= width and 0 <= float(y) <= height for x, y in points)
    assert "prefers-color-scheme: dark" in svg.find(f"{SVG}style").text


def test_the_picture_in_the_documents_is_what_the_command_draws(monkeypatch, tmp_path, capsys):
    for initializer in (keras.initializers.TruncatedNormal, keras.initializers.GlorotUniform):
        monkeypatch.setattr(  # drawing 109 million weights takes seconds
            initializer, "__call__", lambda self, shape, dtype=None: keras.ops.zeros(shape, dtype)
        )
    page = (ROOT / "docs/see_inside.md").read_text("utf-8")
    (line,) = re.findall(r"^    keras-transformers (plot (?:.*\\\n)*.*)$", page, re.MULTILINE)
    *words, committed = shlex.split(line.replace("\\\n", ""))
    assert f"]({Path(committed).relative_to('docs')})" in page
    drawn = tmp_path / "drawn.svg"
    assert cli.main([*words, str(drawn)]) == 0
    assert capsys.readouterr().out == f"written: {drawn}\n"
    assert drawn.read_text("utf-8") == (ROOT / committed).read_text("utf-8")


def test_weights_can_be_drawn(tmp_path, capsys):
    import tiny

    pipeline = tiny.pipeline("classification")
    folder, picture = str(pipeline.save(tmp_path / "saved")), tmp_path / "saved.svg"
    assert cli.main(["plot", folder, "--to", str(picture)]) == 0
    assert f"{pipeline.model.count_params():,} parameters" in picture.read_text("utf-8")
    assert cli.main(["plot", folder, "--to", str(picture), "--vocabulary-size", "9"]) == 2
    assert says(capsys.readouterr().err, "names, not ... weights")


def test_layers_are_drawn_by_graphviz(tmp_path):
    pytest.importorskip("pydot")
    pytest.importorskip("pygraphviz")
    path = tmp_path / "bert.svg"
    kt.inspection.plot(bert(), path, level="layer")
    words = "".join(ElementTree.parse(path).getroot().itertext())
    assert all(f"encoder_layer_{index}" in words for index in range(3))


@pytest.mark.parametrize("package", ["pydot", "pygraphviz"])
def test_without_graphviz_the_error_names_what_to_install_or_do(package, monkeypatch, tmp_path):
    for name in ("pydot", "pygraphviz"):
        monkeypatch.setitem(sys.modules, name, None if name == package else sys)
    with pytest.raises(
        ImportError, match=rf"needs {package}: pip install '.*\[plot\]'; or draw the level 'block'"
    ):
        kt.inspection.plot(vit(), tmp_path / "vit.png", level="layer")
    assert not list(tmp_path.iterdir())


def test_wrong_names_and_levels(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"such.*vit.svg: create"):
        kt.inspection.plot(vit(), tmp_path / "no" / "vit.svg")
    with pytest.raises(ValueError, match=r"vit.png:.*picture.*'block'.*.svg file"):
        kt.inspection.plot(vit(), tmp_path / "vit.png")
    with pytest.raises(ValueError, match="level='blocks'.*use 'block'.*'layer'"):
        kt.inspection.plot(vit(), tmp_path / "vit.svg", level="blocks")
