"""bilm-tf's forward pass in NumPy, float64, from its formulas, and random weights in its layout."""

import json

import h5py
import numpy as np

OPTIONS = {
    "lstm": {
        "dim": 6,
        "projection_dim": 4,
        "n_layers": 2,
        "use_skip_connections": True,
        "cell_clip": 0.4,  # low enough for both clips to apply
        "proj_clip": 0.3,
    },
    "char_cnn": {
        "activation": "relu",
        "embedding": {"dim": 3},
        "filters": [[1, 3], [2, 4], [3, 5]],
        "max_characters_per_token": 9,
        "n_characters": 262,
        "n_highway": 2,
    },
}


def shapes(options):
    """Name -> shape of every array that bilm-tf's dump_weights writes."""
    lstm, cnn = options["lstm"], options["char_cnn"]
    dim, p, units = cnn["embedding"]["dim"], lstm["projection_dim"], lstm["dim"]
    n = sum(number for _, number in cnn["filters"])
    result = {"char_embed": (261, dim)}
    for i, (width, number) in enumerate(cnn["filters"]):
        result |= {f"CNN/W_cnn_{i}": (1, width, dim, number), f"CNN/b_cnn_{i}": (number,)}
    for i in range(cnn["n_highway"]):
        for part in ("carry", "transform"):
            result |= {f"CNN_high_{i}/W_{part}": (n, n), f"CNN_high_{i}/b_{part}": (n,)}
    result |= {"CNN_proj/W_proj": (n, p), "CNN_proj/b_proj": (p,)}
    for d in (0, 1):
        for layer in range(lstm["n_layers"]):
            group = f"RNN_{d}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            result |= {
                f"{group}/W_0": (2 * p, 4 * units),
                f"{group}/B": (4 * units,),
                f"{group}/W_P_0": (units, p),
            }
    return result


def random_arrays(options, seed=0):
    random = np.random.default_rng(seed)
    return {
        name: random.normal(scale=0.6, size=shape).astype("float32")
        for name, shape in shapes(options).items()
    }


def write(folder, options, arrays, stem="tiny"):
    """Writes a model's two files; returns the path of the weights."""
    (folder / f"{stem}_options.json").write_text(json.dumps(options), "utf-8")
    path = folder / f"{stem}_weights.hdf5"
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[name] = array
    return path


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def token_vectors(options, w, character_ids):
    """(batch, tokens, characters) to (batch, tokens, p)."""
    cnn = options["char_cnn"]
    table = np.concatenate([np.zeros((1, w["char_embed"].shape[1])), w["char_embed"]])
    embedded = table[character_ids]  # (batch, tokens, characters, dim)
    activate = {"relu": lambda x: np.maximum(x, 0), "tanh": np.tanh}[cnn["activation"]]
    parts = []
    for i, (width, _) in enumerate(cnn["filters"]):
        kernel = w[f"CNN/W_cnn_{i}"][0]  # (width, dim, filters)
        places = embedded.shape[2] - width + 1
        convolved = np.stack(
            [
                np.einsum("btwd,wdf->btf", embedded[:, :, start : start + width], kernel)
                for start in range(places)
            ]
        )
        parts.append(activate((convolved + w[f"CNN/b_cnn_{i}"]).max(axis=0)))
    x = np.concatenate(parts, axis=-1)
    for i in range(cnn["n_highway"]):
        carry = sigmoid(x @ w[f"CNN_high_{i}/W_carry"] + w[f"CNN_high_{i}/b_carry"])
        transform = np.maximum(
            x @ w[f"CNN_high_{i}/W_transform"] + w[f"CNN_high_{i}/b_transform"], 0
        )
        x = carry * transform + (1 - carry) * x
    return x @ w["CNN_proj/W_proj"] + w["CNN_proj/b_proj"]


def lstm(options, w, group, x):
    """One direction of a sentence (tokens, p): TensorFlow 1's LSTMCell, forget bias 1."""
    sizes = options["lstm"]
    c, m = np.zeros(sizes["dim"]), np.zeros(sizes["projection_dim"])
    outputs = []
    for token in x:
        gates = np.concatenate([token, m]) @ w[f"{group}/W_0"] + w[f"{group}/B"]
        i, j, f, o = np.split(gates, 4)
        c = sigmoid(f + 1.0) * c + sigmoid(i) * np.tanh(j)
        c = np.clip(c, -sizes["cell_clip"], sizes["cell_clip"])
        m = (sigmoid(o) * np.tanh(c)) @ w[f"{group}/W_P_0"]
        m = np.clip(m, -sizes["proj_clip"], sizes["proj_clip"])
        outputs.append(m)
    return np.array(outputs)


def layer_outputs(options, arrays, character_ids):
    """(batch, tokens, layers + 1, 2 p); LSTM layers are 0 after the end of a sentence."""
    w = {name: array.astype("float64") for name, array in arrays.items()}
    words = token_vectors(options, w, character_ids)
    lengths = (character_ids > 0).any(-1).sum(-1)
    num_layers = options["lstm"]["n_layers"]
    p = options["lstm"]["projection_dim"]
    result = np.zeros((*words.shape[:2], num_layers + 1, 2 * p))
    result[:, :, 0] = np.concatenate([words, words], axis=-1)
    for row, length in enumerate(lengths):
        for d in (0, 1):
            x = words[row, :length][:: -1 if d else 1]
            for layer in range(num_layers):
                y = lstm(options, w, f"RNN_{d}/RNN/MultiRNNCell/Cell{layer}/LSTMCell", x)
                x = y + x if layer and options["lstm"]["use_skip_connections"] else y
                part = slice(d * p, (d + 1) * p)
                result[row, :length, layer + 1, part] = x[:: -1 if d else 1]
    return result
