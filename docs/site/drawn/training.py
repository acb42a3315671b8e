"""Training: smoothed targets, and learning rates that warm up."""

import keras
import numpy as np
from drawing import WIDTH, Drawing

from keras_transformers.training import WarmupLinearDecay, noam, token_crossentropy


def label_smoothing() -> Drawing:
    """The targets of one token, hard and smoothed, and the loss over the model's certainty."""
    words, share = ("a", "cat", "dog", "sat", "the"), 0.1
    right = words.index("cat")
    ids = keras.ops.convert_to_tensor([right])

    def loss(logits: np.ndarray, smoothing: float) -> float:
        rows = keras.ops.convert_to_tensor(logits[None].astype("float32"))
        return float(token_crossentropy(ids, rows, label_smoothing=smoothing)[0])

    # The loss is linear in the targets: the gradient at even logits gives them back.
    hard, smooth = (_targets(len(words), right, smoothing) for smoothing in (0.0, share))
    drawing = Drawing(
        404, "Label smoothing moves 0.1 of the target to all words; certainty then costs"
    )
    for x, name, targets, color in (
        (54, "hard target", hard, "orange"),
        (216, "smoothed by 0.1", smooth, "blue"),
    ):
        drawing.words(x + 40, 12, name, "bold")
        drawing.bars(x, 24, targets, words, width=78, color=color)
    drawing.words(WIDTH / 2, 142, "Loss, by the probability of “cat”", "bold")
    shares = np.linspace(0.3, 0.998, 60)
    curves = {}
    for name, smoothing in (("orange", 0.0), ("blue", share)):
        losses = []
        for probability in shares:
            rest = np.log((1 - probability) / (len(words) - 1))
            logits = np.full(len(words), rest)
            logits[right] = np.log(probability)
            losses.append(loss(logits, smoothing))
        curves[name] = np.array(losses)
    left, top, width, height = 46, 164, 280, 190

    def place(probability: float, value: float) -> tuple[float, float]:
        across = (probability - 0.3) / 0.7
        return left + width * across, top + height * (1 - value / 1.4)

    drawing.line([(left, top), (left, top + height), (left + width, top + height)])
    for tick in (0.0, 0.5, 1.0):
        drawing.words(left - 6, place(0.3, tick)[1], f"{tick:g}", "faint", "end")
    for tick in (0.4, 0.6, 0.8, 1.0):
        drawing.words(place(tick, 0)[0], top + height + 14, f"{tick:g}", "faint")
    for name, losses in curves.items():
        drawing.line([place(p, value) for p, value in zip(shares, losses, strict=True)], name)
    best = int(np.argmin(curves["blue"]))
    drawing.words(WIDTH / 2 + 30, 190, "with smoothing (solid),", "")
    drawing.words(WIDTH / 2 + 30, 206, f"lowest at {shares[best]:.2f};")
    drawing.words(WIDTH / 2 + 30, 222, "hard (dashed), lowest at 1")
    drawing.words(WIDTH / 2, 390, "probability that the model gives to the right word", "faint")
    return drawing


def _targets(count: int, right: int, smoothing: float) -> np.ndarray:
    """Returns the targets that `token_crossentropy` compares with: softmax minus its gradient."""
    import tensorflow as tf

    logits = tf.Variable(tf.zeros((1, count)))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(
            token_crossentropy(tf.constant([right]), logits, label_smoothing=smoothing)
        )
    return (1 / count - tape.gradient(loss, logits).numpy()[0]).round(6)


def warm_up() -> Drawing:
    """The Transformer's learning rate, and BERT's."""
    drawing = Drawing(
        390, "Learning rates rise to a peak, then fall with the inverse root, or in a line"
    )
    base = noam(hidden_dim=512)
    bert = WarmupLinearDecay(1e-4, warmup_steps=10_000, total_steps=1_000_000)
    plots = [
        ("Transformer: 4,000 steps up, then 1 / √step", base, 20_000, 4_000, "blue"),
        ("BERT: 10,000 steps up, then in a line to 0", bert, 1_000_000, 10_000, "orange"),
    ]
    for i, (name, schedule, steps, warmup, color) in enumerate(plots):
        top = i * 196
        peak = float(schedule(warmup - 1))
        drawing.words(8, top + 12, name, "bold", "start")
        x, y, width, height = 20, top + 32, 300, 120
        numbers = np.unique(
            np.concatenate([np.linspace(0, steps - 1, 60), np.linspace(0, 2 * warmup, 20)]).astype(int)
        )
        points = [
            (x + width * n / steps, y + height * (1 - float(schedule(int(n))) / (1.15 * peak)))
            for n in numbers
        ]
        drawing.line([(x, y), (x, y + height), (x + width, y + height)])
        drawing.line(points, color)
        across = x + width * warmup / steps
        drawing.words(across + 8, y + 8, f"peak {peak:.2g} at step {warmup:,}", "", "start")
        drawing.words(x, y + height + 14, "0", "faint")
        drawing.words(x + width, y + height + 14, f"{steps:,} steps", "faint", "end")
    return drawing


PICTURES = (label_smoothing, warm_up)
