"""Makes the files in pickles/ with the reference, PyTorch: python tests/golden/make_pickles.py.

`tensors.npz` has what `zip.bin`, `zip_protocol_4.bin` and `legacy.bin` hold: tensors of every type,
views, parameters and tied weights, written in each way that `torch.save` knows. `model.bin` has a
whole module instead of its weights, `training.bin` weights inside another dictionary.
"""

from collections import OrderedDict
from pathlib import Path

import numpy as np
import torch

FOLDER = Path(__file__).parent / "pickles"


def tensors() -> OrderedDict[str, torch.Tensor]:
    """Returns one tensor of each kind."""
    torch.manual_seed(0)
    matrix = torch.randn(3, 4)
    made = OrderedDict(
        matrix=matrix,
        tied=matrix,
        transposed=matrix.t(),
        row=matrix[1],
        column=matrix[:, 2],
        scalar=torch.tensor(1.5),
        empty=torch.zeros(0, 4),
        repeated=torch.arange(5).expand(1, -1),
        parameter=torch.nn.Parameter(torch.randn(2, 2)),
        buffer=torch.nn.Parameter(torch.ones(2), requires_grad=False),
    )
    for kind in (torch.float64, torch.float16, torch.bfloat16):
        made[str(kind)] = torch.randn(3).to(kind)
    for kind in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool):
        made[str(kind)] = torch.tensor([0, 1, 1]).to(kind)
    return made


def main() -> None:
    """Writes the files."""
    FOLDER.mkdir(exist_ok=True)
    weights = tensors()
    arrays = {
        name: (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).detach().numpy()
        for name, tensor in weights.items()
    }
    np.savez_compressed(FOLDER / "tensors.npz", **arrays)
    torch.save(weights, FOLDER / "zip.bin")
    torch.save(dict(weights), FOLDER / "zip_protocol_4.bin", pickle_protocol=4)
    torch.save(weights, FOLDER / "legacy.bin", _use_new_zipfile_serialization=False)
    layer = torch.nn.Linear(2, 3)
    torch.save(layer.state_dict(), FOLDER / "linear.bin")  # its OrderedDict has attributes
    torch.save(layer, FOLDER / "model.bin")
    torch.save({"state_dict": layer.state_dict(), "epoch": 3}, FOLDER / "training.bin")


if __name__ == "__main__":
    main()
