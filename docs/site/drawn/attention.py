"""Attention: its three vectors, its product, its heads, and its masks."""

import math

import keras
import numpy as np
from drawing import WIDTH, Drawing

from keras_transformers.layers import MultiHeadAttention, PaddingMask
from keras_transformers.layers.attend import attend
from keras_transformers.layers.masks import Reach


def query_key_value() -> Drawing:
    """X W = Q, K, V, as matrices with numbers."""
    vectors = np.array([[1, 0, 2, 1], [0, 1, 1, 3]])
    weights = {
        "Q": np.array([[1, 0, 1], [0, 2, 0], [1, 1, 0], [0, 0, 1]]),
        "K": np.array([[0, 1, 1], [1, 0, 2], [0, 1, 0], [1, 1, 0]]),
        "V": np.array([[2, 0, 0], [0, 1, 3], [1, 0, 1], [0, 1, 0]]),
    }
    colors = {"Q": "blue", "K": "orange", "V": "green"}
    sources = {"Q": "queries", "K": "keys", "V": "values"}
    height = 108
    drawing = Drawing(
        3 * height + 8,
        "Two vectors of 4 numbers times three matrices make queries, keys and values of 3 numbers",
    )
    for i, (name, matrix) in enumerate(weights.items()):
        top = i * height + 30
        low = top + 2 * 18  # the middle of the matrices
        _matrix(drawing, 74, low, vectors, "X, 2 × 4", "plain")
        for row, word in enumerate(("Thinking", "Machines")):
            drawing.words(68, low + (row - 0.5) * 18, word, "faint", "end")
        drawing.words(176, low, "×")
        _matrix(drawing, 186, low, matrix, f"W^{name}, 4 × 3", colors[name])
        drawing.words(262, low, "=")
        _matrix(drawing, 272, low, vectors @ matrix, f"{name}, 2 × 3", colors[name])
        drawing.words(302, low + 28, sources[name], "faint")
    return drawing


def _matrix(
    drawing: Drawing, x: float, middle: float, values: np.ndarray, caption: str, color: str
) -> None:
    """Draws a matrix whose left edge is x, with its name above."""
    rows, columns = values.shape
    width, height = (22, 18) if columns > 3 else (20, 18)
    top = middle - rows * height / 2
    drawing.words(x + columns * width / 2, top - 9, caption, "bold")
    words = [[str(value) for value in row] for row in values]
    shades = np.full(values.shape, 0.0 if color == "plain" else 0.4)
    tint = "blue" if color == "plain" else color
    drawing.table(x, top, shades, (width, height), words=words, color=tint)


def scaled_dot_product_attention() -> Drawing:
    """softmax(Q K^T / sqrt(d_k)) V, with shapes and with the numbers of two words."""
    width, scores = 64, (112, 96)
    keys = np.array([[[[score / width] * width for score in scores]]])  # (1, 1, key, head_dim)
    query = np.ones((1, 1, 1, width))
    _, shares = attend(
        *(keras.ops.convert_to_tensor(x.astype("float32")) for x in (query / 8, keys, keys)),
        return_probabilities=True,
    )
    first, second = np.asarray(shares).ravel()
    scaled = [score / math.sqrt(width) for score in scores]
    drawing = Drawing(
        436,
        "Scaled dot-product attention: scores of queries and keys, divided by the root of their "
        "width, masked, softmax, times the values",
    )
    left, right = 92, 262
    drawing.words(left, 14, "n queries, m keys", "bold")
    drawing.words(right, 14, "“Thinking”, d = 64", "bold")
    for x, name, shape in ((36, "Q", "n × d"), (100, "K", "m × d"), (164, "V", "m × d")):
        drawing.node((x, 44), (54, 36), f"{name}\n{shape}", "embedding")
    steps = [
        (104, "Q Kᵀ", "n × m", "attention", "q · k₁ = {:.0f}\nq · k₂ = {:.0f}".format(*scores)),
        (164, "÷ √d", "n × m", "plain", "÷ 8\n{:.0f} and {:.0f}".format(*scaled)),
        (224, "mask", "hidden: −10⁹", "plain", "both visible"),
        (284, "softmax", "each row sums to 1", "norm", f"{first:.2f} and {second:.2f}"),
        (344, "× V", "n × d", "attention", f"{first:.2f} v₁\n+ {second:.2f} v₂"),
    ]
    drawing.arrow([(36, 62), (36, 83)])
    drawing.arrow([(100, 62), (100, 83)])
    drawing.line([(180, 62), (180, 344)])
    drawing.arrow([(180, 344), (163, 344)])
    for y, name, shape, color, numbers in steps:
        drawing.node((left, y), (140, 38), f"{name}\n{shape}", color)
        drawing.words(right, y, numbers)
        drawing.arrow([(left, y + 19), (left, y + 40)])
    drawing.node((left, 404), (140, 36), "output\nn × d", "end")
    drawing.words(right, 404, "one vector, mostly v₁")
    return drawing


def multi_head_attention() -> Drawing:
    """Projections, eight heads, concatenation and projection, with shapes."""
    heads, hidden = 8, 512
    layer = MultiHeadAttention(heads, hidden)
    layer.build((1, None, hidden))
    head = hidden // heads
    drawing = Drawing(
        430,
        f"Multi-head attention: {heads} heads of {head} numbers each, side by side, then joined",
    )
    middle = WIDTH / 2
    drawing.node((middle, 24), (150, 36), f"X\nn × {hidden}", "embedding")
    for x, name in ((64, "Q"), (170, "K"), (276, "V")):
        drawing.arrow([(middle, 42), (middle, 58), (x, 58), (x, 76)])
        drawing.node((x, 94), (96, 36), f"X W^{name}\nn × {hidden}", "plain")
        drawing.arrow([(x, 112), (x, 134)])
    drawing.words(middle, 146, f"split into {heads} heads: n × {head} each", "faint")
    for i in reversed(range(heads)):
        x, y = 32 + 12 * i, 198 + 6 * (heads - 1 - i)
        drawing.box(x, y - 34, 190, 56, "attention")
    drawing.words(127, 198 + 42 - 6, f"attention of one head\nn × {head}")
    drawing.words(290, 252, f"{heads} times,\nin parallel", "faint")
    drawing.arrow([(middle, 264), (middle, 284)])
    drawing.node((middle, 302), (190, 36), f"heads side by side\nn × {heads} · {head} = n × {hidden}")
    drawing.arrow([(middle, 320), (middle, 340)])
    drawing.node((middle, 358), (190, 36), f"× W^O\n{hidden} × {hidden}", "plain")
    drawing.arrow([(middle, 376), (middle, 392)])
    drawing.words(middle, 402, f"output, n × {hidden}", "bold")
    drawing.words(middle, 420, f"{layer.count_params():,} parameters", "faint")
    return drawing


def masks() -> Drawing:
    """The padding mask, the causal mask, and that of cross-attention."""
    source, target = ["I", "like", "dogs", "[PAD]"], ["ich", "mag", "Hunde", "[PAD]"]
    ids = np.array([[1, 2, 3, 0]])
    padding = np.asarray(PaddingMask()(keras.ops.convert_to_tensor(ids)))[0]  # (key,)
    places = keras.ops.arange(len(target))
    causal = np.asarray(Reach(causal=True).mask(places, places))  # (query, key)
    every = np.tile(padding, (len(source), 1))
    kinds = [
        ("Padding: no word attends to [PAD]", source, source, every),
        ("Causal: only to itself and to earlier words", target, target, causal),
        ("Both, in a decoder", target, target, causal & every),
        ("Cross: the target attends to the source", target, source, every),
    ]
    block = 138
    drawing = Drawing(
        4 * block + 18, "Which word, at the left, attends to which word, at the top, in four masks"
    )
    for i, (caption, queries, keys, mask) in enumerate(kinds):
        top = i * block
        drawing.words(8, top + 12, caption, "bold", "start")
        words = [["✓" if cell else "" for cell in row] for row in mask]
        drawing.table(
            72, top + 42, mask, (62, 21), words=words, rows=queries, columns=keys
        )
    drawing.words(WIDTH / 2, 4 * block + 8, "rows: queries; columns: keys", "faint")
    return drawing


def grouped_queries() -> Drawing:
    """Multi-head, grouped-query and multi-query attention, with the size of their caches."""
    heads, width, block = 8, 128, 116
    drawing = Drawing(
        3 * block + 10,
        "Eight query heads with eight, two or one key and value heads, and their caches",
    )
    kinds = [("multi-head", heads), ("grouped queries", 2), ("multi-query", 1)]
    for i, (name, num_keys) in enumerate(kinds):
        top = i * block
        layer = MultiHeadAttention(
            heads, heads * width, num_key_value_heads=num_keys, head_dim=width
        )
        layer.build((1, None, heads * width))
        keys = layer.keys_values(keras.ops.zeros((1, 1, heads * width)))
        numbers = sum(math.prod(each.shape) for each in keys)
        drawing.words(8, top + 12, name, "bold", "start")
        drawing.words(332, top + 12, f"cache: {numbers:,} per token, a layer", "faint", "end")
        for head in range(heads):
            x = 30 + 40 * head
            group = head * num_keys // heads
            center = 30 + 40 * ((group + 0.5) * heads / num_keys - 0.5)
            drawing.arrow([(center, top + 74), (x, top + 52)])
            drawing.node((x, top + 40), (32, 22), f"Q{head + 1}", "embedding")
        for key in range(num_keys):
            center = 30 + 40 * ((key + 0.5) * heads / num_keys - 0.5)
            drawing.node((center, top + 86), (34, 22), "K V", "attention")
    return drawing


def local_attention() -> Drawing:
    """Attention to all words and within a window, and how far windows reach in layers."""
    length, window = 13, 2
    places = keras.ops.arange(length)
    cell = (11, 11)
    drawing = Drawing(
        400, "Global attention fills a square, local attention a band, which widens layer by layer"
    )
    for x, name, reach in (
        (12, "global: every word", Reach()),
        (184, f"local: {window} to each side", Reach(window=window)),
    ):
        mask = np.asarray(reach.mask(places, places))
        drawing.words(x + 72, 12, name, "bold")
        drawing.table(x, 24, mask, cell)
        drawing.words(x + 72, 180, f"{int(mask.sum())} scores", "faint")
    drawing.words(WIDTH / 2, 214, "What the middle word knows after each layer", "bold")
    step = np.asarray(Reach(window=window).mask(places, places), dtype=int)
    kinds = ("local", "local", "global")
    knows = np.eye(length, dtype=int)
    row = {name: np.asarray(mask) for name, mask in (("local", step), ("global", np.ones_like(step)))}
    for layer in range(4):
        y = 352 - 34 * layer
        if layer:
            knows = (row[kinds[layer - 1]] @ knows > 0).astype(int)
        seen = knows[length // 2]
        drawing.table(106, y, seen[None], (17, 22))
        name = f"{layer}, {kinds[layer - 1]}" if layer else ""
        drawing.words(100, y + 11, f"layer {name}" if layer else "itself", "faint", "end")
    drawing.words(WIDTH / 2, 388, "ModernBERT: two local layers after each global one", "faint")
    return drawing


PICTURES = (
    query_key_value,
    scaled_dot_product_attention,
    multi_head_attention,
    masks,
    grouped_queries,
    local_attention,
)
