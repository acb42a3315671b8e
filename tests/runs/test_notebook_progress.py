"""The bar and table under a notebook's cell."""

import keras
import numpy as np

from keras_transformers.runs.progress import NotebookProgress, in_notebook


class Handle:
    def __init__(self):
        self.pages = []

    def __call__(self, page):
        self.pages.append(page._repr_html_())
        return self

    def update(self, page):
        self(page)


def test_a_table_of_epochs(capsys):
    handle = Handle()
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    progress = NotebookProgress(handle)
    model.fit(
        np.ones((8, 2)), np.ones((8, 1)), epochs=2, batch_size=4, verbose=1, callbacks=[progress]
    )
    last = handle.pages[-1]
    assert 'value="4" max="4"' in last
    assert "epoch 2/2" in last
    assert "0:00 left" in last
    assert last.count("<tr>") == 3
    assert "<td>loss</td>" in last
    assert capsys.readouterr().out == ""  # Keras' own bar is not shown


def test_here_is_no_notebook():
    assert not in_notebook()
