"""Compares each family's outputs with transformers', and its weights after a round trip.

    pip install -e '.[reference]'
    python benchmarks/against_transformers/outputs.py [--models 20]

For each family, transformers creates models with different random weights and saves them; our
reader builds and fills ours. Texts have different lengths. The difference is the largest one of an
output at real tokens, divided by the largest output. Then our writer saves the weights under
transformers' names, transformers reads them, and every tensor is compared bit by bit. A Translator
never generates padding, so Marian's logit and bias for it are -10,000 here and not compared.
"""

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.numpy import load_file

import keras_transformers as kt
from keras_transformers.convert.families import families, family_of

VOCABULARY, LENGTHS, PAD = 60, (9, 1, 6), 1
SMALL = {"vocab_size": VOCABULARY, "pad_token_id": PAD, "initializer_range": 0.3}
ENCODER = {
    **SMALL,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 24,
}
T5 = {
    "vocab_size": VOCABULARY,
    "d_model": 16,
    "d_kv": 6,
    "d_ff": 24,
    "num_layers": 2,
    "num_heads": 2,
    "initializer_factor": 1.0,
    "decoder_start_token_id": 0,
}
MARIAN = {
    "vocab_size": VOCABULARY,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": 24,
    "activation_function": "swish",
    "scale_embedding": True,
    "pad_token_id": 59,
    "decoder_start_token_id": 59,
    "eos_token_id": 0,
    "init_std": 0.3,
    "bos_token_id": None,
}


@dataclass(frozen=True)
class Family:
    """A family, and its class in transformers.

    Attributes:
        name: the family's name.
        build: our builder.
        kind: the class in transformers whose outputs are compared.
        config: the fields of its config.
        output: our output -> theirs.
        feeds: the inputs: "text", "causal", "pair" of source and target, or "image".
        pad: the id of padding.
        options: more arguments of the class.
    """

    name: str
    build: Callable[..., Any]
    kind: str
    config: dict[str, Any]
    output: tuple[str, str] = ("sequence_output", "last_hidden_state")
    feeds: str = "text"
    pad: int = PAD
    options: dict[str, Any] = field(default_factory=dict)


encoders, decoders = kt.models.encoders, kt.models.encoder_decoders
FAMILIES = [
    Family(
        "albert",
        encoders.albert.albert,
        "AlbertModel",
        {**ENCODER, "embedding_size": 8, "pad_token_id": 0},
        pad=0,
    ),
    Family("bert", encoders.bert.bert, "BertModel", {**ENCODER, "pad_token_id": 0}, pad=0),
    Family(
        "distilbert",
        encoders.distilbert.distilbert,
        "DistilBertModel",
        {
            **SMALL,
            "pad_token_id": 0,
            "dim": 16,
            "n_layers": 2,
            "n_heads": 2,
            "hidden_dim": 24,
            "max_position_embeddings": 24,
        },
        pad=0,
    ),
    Family("roberta", encoders.roberta.roberta, "RobertaModel", {**ENCODER, "type_vocab_size": 1}),
    Family(
        "xlm_roberta",
        encoders.roberta.roberta,
        "XLMRobertaModel",
        {**ENCODER, "type_vocab_size": 1},
    ),
    Family("mpnet", encoders.mpnet.mpnet, "MPNetModel", ENCODER),
    Family(
        "electra",
        encoders.electra.electra,
        "ElectraModel",
        {**ENCODER, "embedding_size": 8, "pad_token_id": 0},
        pad=0,
    ),
    Family(
        "gpt",
        kt.families.gpt.gpt,
        "GPT2LMHeadModel",
        {
            "vocab_size": VOCABULARY,
            "n_embd": 16,
            "n_layer": 2,
            "n_head": 2,
            "n_positions": 24,
            "initializer_range": 0.3,
            "bos_token_id": 0,
            "eos_token_id": 0,
        },
        ("logits", "logits"),
        "causal",
    ),
    Family(
        "vit",
        kt.families.vit.vit,
        "ViTModel",
        {
            "hidden_size": 16,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 24,
            "image_size": 8,
            "patch_size": 4,
            "initializer_range": 0.3,
        },
        feeds="image",
        options={"add_pooling_layer": False},
    ),
    Family(
        "t5",
        decoders.t5.t5,
        "T5ForConditionalGeneration",
        T5,
        ("logits", "logits"),
        "pair",
        pad=0,
    ),
    Family(
        "t5",
        decoders.t5.t5,
        "T5ForConditionalGeneration",
        {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        ("logits", "logits"),
        "pair",
        pad=0,
    ),
    Family(
        "marian",
        decoders.marian.marian,
        "MarianMTModel",
        MARIAN,
        ("logits", "logits"),
        "pair",
        pad=59,
    ),
]


def main(models: int) -> None:
    """Prints one row per family."""
    print(f"transformers {transformers.__version__}, {models} models each")
    print(
        "| class of transformers | largest difference / largest output | tensors that come back |"
    )
    print("|---|--:|---|")
    for family in FAMILIES:
        results = [compared(family, seed) for seed in range(models)]
        differences, equal = zip(*results, strict=True)
        name = family.kind + (" 1.1" if "feed_forward_proj" in family.config else "")
        print(f"| {name} | {max(differences):.1e} | {sum(equal)} of {models} models |", flush=True)


def compared(family: Family, seed: int) -> tuple[float, bool]:
    """Returns the difference for one model, and whether all its tensors survive the round trip."""
    transformers.set_seed(seed)
    kind = getattr(transformers, family.kind)
    theirs = kind(kind.config_class(**family.config), **family.options).eval()
    if "feed_forward_proj" in family.config:  # new models tie it, published ones do not
        theirs.lm_head.weight = torch.nn.Parameter(0.3 * torch.randn(VOCABULARY, 16))
    with torch.no_grad():
        for parameter in theirs.parameters():
            if parameter.ndim == 1:  # otherwise norms are 1 and biases 0
                parameter.add_(0.2 * torch.randn_like(parameter))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        theirs.save_pretrained(folder)
        files = family_of(folder, families())
        ours = family.build(**files.read(folder))
        files.fill(ours, folder)
        ours_given, theirs_given, real = inputs(family, np.random.default_rng(seed))
        found = np.asarray(ours(ours_given, training=False)[family.output[0]])
        with torch.no_grad():
            wanted = theirs(**theirs_given)[family.output[1]].numpy()
        found, wanted = found[real], wanted[real]
        if family.name == "marian":
            found, wanted = (np.delete(each, family.pad, -1) for each in (found, wanted))
        before = load_file(folder / "model.safetensors")
        files.save(ours, folder / "model.safetensors")
        again = kind.from_pretrained(folder, **family.options)
        again.save_pretrained(folder)
        after = load_file(folder / "model.safetensors")
    for biases in (before, after):
        if "final_logits_bias" in biases:
            biases["final_logits_bias"] = np.delete(biases["final_logits_bias"], family.pad, -1)
    same = before.keys() == after.keys() and all(
        np.array_equal(before[name], after[name]) for name in before
    )
    return float(np.abs(found - wanted).max() / np.abs(wanted).max()), same


def inputs(
    family: Family, random: np.random.Generator
) -> tuple[dict[str, Any], dict[str, Any], np.ndarray]:
    """Returns our inputs, theirs, and a mask of the real positions of the output."""
    shape = (len(LENGTHS), max(LENGTHS))
    if family.feeds == "image":
        images = random.uniform(0, 255, (2, 8, 8, 3)).astype("float32")
        pixels = torch.tensor(images.transpose(0, 3, 1, 2)) / 127.5 - 1
        return {"images": images}, {"pixel_values": pixels}, np.ones((2, 5), bool)
    real = np.arange(shape[1]) < np.array(LENGTHS)[:, None]
    ids = np.where(real, random.integers(3, VOCABULARY - 3, shape), family.pad).astype("int32")
    given = torch.tensor(ids).long()
    if family.feeds == "pair":
        targets = random.integers(3, VOCABULARY - 3, shape).astype("int32")
        ours = {"source_token_ids": ids, "target_token_ids": targets}
        theirs = {"decoder_input_ids": torch.tensor(targets).long()}
        theirs |= {"input_ids": given, "attention_mask": torch.tensor(real).long()}
        return ours, theirs, np.ones(shape, bool)
    if family.feeds == "causal":
        return {"token_ids": ids}, {"input_ids": given}, real
    ours = {"token_ids": ids, "padding_mask": real}
    if family.name in ("albert", "bert", "electra"):
        ours["segment_ids"] = np.zeros_like(ids)
    return ours, {"input_ids": given, "attention_mask": torch.tensor(real).long()}, real


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=20)
    main(parser.parse_args().models)
