import threading

import keras
import pytest

from keras_transformers.layers import RowDense
from keras_transformers.layers.scopes import KERNELS


def test_a_kernel_computes_its_layer_alone_and_inside_the_block_alone():
    layer, other = (RowDense(2, kernel_initializer="ones") for _ in range(2))
    ones = keras.ops.ones((1, 3, 4))
    with KERNELS.use({layer: lambda rows: rows[:, :2]}):
        assert float(layer(ones)[0, 0, 0]) == 1.0
        assert float(other(ones)[0, 0, 0]) == 4.0
    assert float(layer(ones)[0, 0, 0]) == 4.0


def test_an_error_and_an_inner_block_leave_the_outer_blocks_kernels():
    layer = RowDense(2)
    with KERNELS.use({layer: abs}):
        with pytest.raises(ZeroDivisionError), KERNELS.use({layer: len}):
            1 / 0  # noqa: B018
        assert KERNELS.of(layer) is abs
        with KERNELS.use({}):
            assert KERNELS.of(layer) is None
    assert KERNELS.of(layer) is None


def test_other_threads_do_not_see_it():
    layer = RowDense(2)
    kernels = []
    with KERNELS.use({layer: abs}):
        thread = threading.Thread(target=lambda: kernels.append(KERNELS.of(layer)))
        thread.start()
        thread.join()
    assert kernels == [None]
