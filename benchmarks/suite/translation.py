"""Compares translation: our search in the graph, CTranslate2 and Hugging Face's Marian.

    pip install -e '.[benchmark]'
    python benchmarks/suite/translation.py

All have Transformer-base's shape (6 + 6 layers, 512 wide, 8 heads, feed-forward 2048), V = 32,000,
and the same random weights in float32: 25 source tokens, 25 forced target tokens, token ids in and
out, one thread. Times are measured only if CTranslate2 gives the same tokens as ours. Marian is
included if transformers and torch are installed; PyTorch's float32 products are slow on AMD
processors.

`--profile` instead shows how our step spends its time, by kind of operation.
"""

import argparse
import collections
import functools
import tempfile
from collections.abc import Callable
from typing import Any

import contest  # first: it sets the number of threads
import ctranslate2
import keras
import numpy as np
import tensorflow as tf
from ctranslate2.specs import TransformerSpec

import keras_transformers as kt
from keras_transformers.decoding import beam_search
from keras_transformers.layers.scopes import KERNELS
from keras_transformers.models.anatomy import anatomy
from keras_transformers.saved_model.forms.panels import DecodingForm

VOCABULARY_SIZE, LENGTH, POSITIONS = 32_000, 25, 128
PAD, START, END = 0, 2, 3
Engine = Callable[[np.ndarray, int], np.ndarray]  # (source ids (batch, LENGTH), beams) -> best ids


def search_graph(model: Any, num_beams: int) -> Any:
    """Returns encoder and search in one graph, as in an export."""

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)])
    def translate(source: Any) -> Any:
        step, cache = model.start_decoding(source)
        found = beam_search(
            step,
            tf.fill([tf.shape(source)[0]], START),
            cache,
            end_token_id=END,
            max_length=LENGTH,
            min_length=LENGTH,
            num_beams=num_beams,
            num_hypotheses=1,
            pad_token_id=PAD,
            growing_axis=2,
        )
        return found.token_ids[:, 0]

    return translate


def ours(model: Any) -> Engine:
    """Returns our engine."""
    graphs = {num_beams: search_graph(model, num_beams) for num_beams in (1, 4)}
    form = DecodingForm(model, several_rows=True)
    form.arrange()
    with KERNELS.use(form.kernels):
        for graph in graphs.values():
            graph.get_concrete_function()  # traces it
    return lambda source, num_beams: graphs[num_beams](tf.constant(source)).numpy()


def weights_of(model: Any) -> dict[str, np.ndarray]:
    """Returns the model's weights by path, without the model's name."""
    return {weight.path.removeprefix(f"{model.name}/"): weight.numpy() for weight in model.weights}


def ctranslate2_engine(model: Any) -> Engine:
    """Returns CTranslate2 with the model's weights."""
    weights = weights_of(model)
    table = anatomy(model).positions[0]._table
    spec = TransformerSpec.from_config(6, 8, pre_norm=False)
    tokens = [f"t{i}" for i in range(VOCABULARY_SIZE)]
    tokens[:4] = ["<pad>", "<unk>", "<s>", "</s>"]

    def linear(target: Any, *layers: str) -> None:
        target.weight = np.concatenate([weights[f"{layer}/kernel"].T for layer in layers])
        target.bias = np.concatenate([weights[f"{layer}/bias"] for layer in layers])

    def norm(target: Any, layer: str) -> None:
        target.gamma, target.beta = weights[f"{layer}/gamma"], weights[f"{layer}/beta"]

    for side, stack in (("encoder", spec.encoder), ("decoder", spec.decoder)):
        embeddings = stack.embeddings[0] if side == "encoder" else stack.embeddings
        embeddings.weight = weights["token_embedding/embeddings"]
        stack.position_encodings.encodings = table
        for number, layer in enumerate(stack.layer):
            path = f"{side}_layer_{number}"
            attention = [f"{path}/self_attention/{part}" for part in ("query", "key", "value")]
            linear(layer.self_attention.linear[0], *attention)
            linear(layer.self_attention.linear[1], f"{path}/self_attention/output")
            norm(layer.self_attention.layer_norm, f"{path}/self_attention_norm")
            if side == "decoder":
                cross = f"{path}/cross_attention"
                linear(layer.attention.linear[0], f"{cross}/query")
                linear(layer.attention.linear[1], f"{cross}/key", f"{cross}/value")
                linear(layer.attention.linear[2], f"{cross}/output")
                norm(layer.attention.layer_norm, f"{path}/cross_attention_norm")
            linear(layer.ffn.linear_0, f"{path}/feed_forward/intermediate")
            linear(layer.ffn.linear_1, f"{path}/feed_forward/output")
            norm(layer.ffn.layer_norm, f"{path}/feed_forward_norm")
    spec.decoder.projection.weight = weights["token_embedding/embeddings"]
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    spec.config.layer_norm_epsilon = 1e-6
    spec.config.add_source_bos = spec.config.add_source_eos = False
    with tempfile.TemporaryDirectory() as folder:
        spec.validate()
        spec.save(folder)
        translator = ctranslate2.Translator(folder, compute_type="float32", intra_threads=1)

    def translate(source: np.ndarray, num_beams: int) -> np.ndarray:
        results = translator.translate_batch(
            [[tokens[i] for i in row] for row in source],
            beam_size=num_beams,
            length_penalty=0.6 if num_beams > 1 else 1,
            min_decoding_length=LENGTH,
            max_decoding_length=LENGTH,
        )
        ids = {token: i for i, token in enumerate(tokens)}
        return np.array([[ids[token] for token in result.hypotheses[0]] for result in results])

    return translate


def marian_engine(model: Any) -> Engine:
    """Returns Hugging Face's MarianMTModel with the model's weights."""
    import torch
    from transformers import MarianConfig, MarianMTModel

    torch.set_num_threads(1)
    weights = weights_of(model)
    config = MarianConfig(
        vocab_size=VOCABULARY_SIZE,
        d_model=512,
        encoder_layers=6,
        decoder_layers=6,
        encoder_attention_heads=8,
        decoder_attention_heads=8,
        encoder_ffn_dim=2048,
        decoder_ffn_dim=2048,
        max_position_embeddings=POSITIONS,
        activation_function="relu",
        scale_embedding=True,
        pad_token_id=PAD,
        bos_token_id=START,
        eos_token_id=END,
        forced_eos_token_id=None,
        decoder_start_token_id=START,
    )
    marian = MarianMTModel(config).eval()
    names = {
        "self_attn": "self_attention",
        "encoder_attn": "cross_attention",
        "q_proj": "query",
        "k_proj": "key",
        "v_proj": "value",
        "out_proj": "output",
        "fc1": "feed_forward/intermediate",
        "fc2": "feed_forward/output",
        "self_attn_layer_norm": "self_attention_norm",
        "encoder_attn_layer_norm": "cross_attention_norm",
        "final_layer_norm": "feed_forward_norm",
    }
    state = marian.state_dict()
    for key in state:
        if ".layers." in key:
            _, side, _, number, *parts, leaf = key.split(".")
            path = "/".join(names[part] for part in parts)
            ours, norms = {"weight": ("kernel", "gamma"), "bias": ("bias", "beta")}[leaf]
            leaf = norms if path.endswith("norm") else ours
            state[key] = torch.tensor(weights[f"{side}_layer_{number}/{path}/{leaf}"].T)
        elif "embed_positions" in key:
            state[key] = torch.tensor(anatomy(model).positions[0]._table)
        elif key != "final_logits_bias":
            state[key] = torch.tensor(weights["token_embedding/embeddings"])
    marian.load_state_dict(state)

    def translate(source: np.ndarray, num_beams: int) -> np.ndarray:
        with torch.inference_mode():
            found = marian.generate(
                torch.tensor(source.astype(np.int64)),
                attention_mask=torch.ones(source.shape, dtype=torch.int64),
                num_beams=num_beams,
                length_penalty=0.6,
                min_new_tokens=LENGTH,
                max_new_tokens=LENGTH,
                do_sample=False,
            )
        return found[:, 1:].numpy()

    return translate


def profile(model: Any, source: np.ndarray, num_beams: int) -> list[tuple[str, float]]:
    """Returns kinds of operation with their share of a translation's time, largest first.

    They come from a session's trace of the exported graph, which names every kernel.
    """
    v1 = tf.compat.v1
    module = tf.Module()
    module.variables_of_model = [weight.value for weight in model.weights]
    module.translate = search_graph(model, num_beams)
    metadata = v1.RunMetadata()
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(module, folder, {"serving_default": module.translate})
        with v1.Session(graph=tf.Graph()) as session:
            loaded = v1.saved_model.load(session, ["serve"], folder)
            signature = loaded.signature_def["serving_default"]
            (fed,), (fetched,) = signature.inputs.values(), signature.outputs.values()
            for options in (None, v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)):
                session.run(fetched.name, {fed.name: source}, options, metadata)
    nanoseconds: collections.Counter[str] = collections.Counter()
    for device in metadata.step_stats.dev_stats:
        for node in device.node_stats:
            kind = node.timeline_label.partition(" = ")[2].partition("(")[0]
            nanoseconds[kind or node.node_name] += node.op_end_rel_nanos - node.op_start_rel_nanos
    total = sum(nanoseconds.values())
    return [(kind, count / total) for kind, count in nanoseconds.most_common(10)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=20.0, help="for each row")
    parser.add_argument("--profile", action="store_true")
    arguments = parser.parse_args()
    keras.utils.set_random_seed(0)
    model = kt.transformer_base(
        vocabulary_size=VOCABULARY_SIZE, max_sequence_length=POSITIONS, dropout=0.0
    )
    source = np.random.default_rng(0).integers(4, VOCABULARY_SIZE, (32, LENGTH), np.int32)
    cases = {
        f"{name}, {batch} x {LENGTH}": (source[:batch], num_beams)
        for name, num_beams in (("greedy", 1), ("beam 4", 4))
        for batch in (1, 32)
    }
    if arguments.profile:
        for title, case in cases.items():
            shares = ", ".join(f"{kind} {share:.1%}" for kind, share in profile(model, *case))
            print(f"{title}: {shares}", flush=True)
        return
    engines = {"ours": ours(model), "CTranslate2": ctranslate2_engine(model)}
    try:
        engines["Marian"] = marian_engine(model)
    except ImportError as error:
        print(f"Marian is left out: {error}")
    rows = {}
    for title, case in cases.items():
        same = engines["ours"](*case) == engines["CTranslate2"](*case)
        assert same.mean() > 0.98, f"{title}: {same.mean():.0%} of the tokens are CTranslate2's"
        jobs = {name: functools.partial(engine, *case) for name, engine in engines.items()}
        rows[title] = contest.take_turns(jobs, seconds=arguments.seconds)
        print(contest.line(title, rows[title]), flush=True)
    contest.write("translation", "python benchmarks/suite/translation.py", rows)


if __name__ == "__main__":
    main()
