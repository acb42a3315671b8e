"""Positions: rotations of queries and keys."""

import math

import keras
import numpy as np
from drawing import WIDTH, Drawing

from keras_transformers.layers import RotaryPositions


def rotary_positions() -> Drawing:
    """Three pairs of numbers, rotated at their own speeds; products depend on distances."""
    pairs, base = 3, 100.0
    rotate = RotaryPositions(base)
    heads = np.zeros((1, 1, 5, 2 * pairs), "float32")
    heads[..., :pairs] = 1  # each pair starts at (1, 0)
    turned = np.asarray(
        rotate(keras.ops.convert_to_tensor(heads), keras.ops.arange(5)[None])
    )[0, 0]  # (position, 2 * pairs)
    drawing = Drawing(
        372, "Rotary positions: each pair of numbers turns by an angle that grows with the position"
    )
    radius = 38.0
    for pair in range(pairs):
        x, y = 62 + 108 * pair, 84.0
        angle = math.degrees(math.atan2(turned[1, pair + pairs], turned[1, pair]))
        drawing.ring((x, y), "", radius=radius)
        for position in range(5):
            across, up = turned[position, pair], turned[position, pair + pairs]
            end = (x + radius * float(across), y - radius * float(up))
            drawing.line([(x, y), end])
            if pair < 2:  # the third's are too close
                far = radius + 9
                drawing.words(round(x + far * float(across), 1), round(y - far * float(up), 1), str(position), "faint")
        drawing.words(x, 14, f"pair {pair + 1}", "bold")
        drawing.words(x, 150, f"{angle:.1f}° a position", "faint")
    drawing.words(WIDTH / 2, 170, "vectors at positions 0 to 4", "faint")
    drawing.words(WIDTH / 2, 202, "q · k after the rotation, by the distance alone", "bold")
    products = turned @ turned.T  # (query, key)
    drawing.table(
        92,
        238,
        products / pairs,
        (48, 22),
        words=[[f"{value:.2f}" for value in row] for row in products],
        rows=[f"query at {i}" for i in range(5)],
        columns=[f"key at {i}"[-1] for i in range(5)],
    )
    drawing.words(WIDTH / 2, 362, "same distance, same product: equal diagonals", "faint")
    return drawing


PICTURES = (rotary_positions,)
