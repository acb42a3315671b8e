"""Pictures of attention weights."""

import numpy as np
import pytest

from keras_transformers.inspection import (
    AttentionMap,
    attention_figure,
    attention_picture,
    attention_pictures,
    rollout_figure,
)

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install -e .[translation]")


def test_darker_where_more_was_looked():
    picture = attention_picture(["ein", "Hund"], ["a", "dog"], np.eye(2))
    assert picture.dtype == np.uint8
    assert picture.shape == (600, 600, 3)
    flipped = attention_picture(["ein", "Hund"], ["a", "dog"], 1 - np.eye(2))
    blue = (picture[:, :, 0] < 50) & (picture[:, :, 2] > 80)
    rows, columns = np.nonzero(blue)
    assert np.corrcoef(rows, columns)[0, 1] > 0.5, "the diagonal is dark"
    rows, columns = np.nonzero((flipped[:, :, 0] < 50) & (flipped[:, :, 2] > 80))
    assert np.corrcoef(rows, columns)[0, 1] < -0.5


def test_padding_is_not_drawn_and_a_batch_has_one_size():
    tokens = [[b"ein", b"Hund", b""], ["$x$", "", ""]]
    pictures = attention_pictures(tokens, tokens, np.full((2, 3, 3), 0.5))
    assert pictures.shape == (2, 600, 600, 3)
    alone = attention_picture(["ein", "Hund"], ["ein", "Hund"], np.full((2, 2), 0.5))
    np.testing.assert_array_equal(pictures[0], alone)


def test_fewer_weights_than_tokens():
    with pytest.raises(ValueError, match=r"\(1, 2\).*2 target.*2 source tokens"):
        attention_picture(["a", "b"], ["c", "d"], np.ones((1, 2)))


def test_figures_of_one_head_of_a_layer_and_of_all():
    probabilities = np.full((2, 3, 2, 2), 0.5)
    found = AttentionMap(probabilities, ["a", "b"], ["x", "y"])
    one = attention_figure(found, layer=1, head=2, dark=True)
    (axes,) = one.axes
    assert axes.get_title() == "layer 1, head 2"
    assert [label.get_text() for label in axes.get_xticklabels()] == ["x", "y"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]
    assert one.get_facecolor()[:3] != (1.0, 1.0, 1.0)
    assert len(attention_figure(found, layer=0).axes) == 3
    assert len(attention_figure(found).axes) == 6
    with pytest.raises(IndexError, match="layer=2, head=None:.*2 layers.*3 heads"):
        attention_figure(found, layer=2)


def test_a_figure_of_the_rollout():
    probabilities = np.array([[[[1.0, 0.0], [1.0, 0.0]]]])  # (layers, heads, queries, keys)
    found = AttentionMap(probabilities, ["a", "b"], ["a", "b"])
    (axes,) = rollout_figure(found).axes
    assert axes.get_title() == "rollout"
    assert [label.get_text() for label in axes.get_xticklabels()] == ["a", "b"]
    np.testing.assert_allclose(axes.images[0].get_array(), [[1.0, 0.0], [0.5, 0.5]])
    between = AttentionMap(np.full((1, 1, 1, 2), 0.5), ["x"], ["a", "b"])
    with pytest.raises(ValueError, match="self-attention"):
        rollout_figure(between)
