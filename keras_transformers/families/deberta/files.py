"""Describes DeBERTa v2 and v3 in Hugging Face's files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras

from keras_transformers.convert.config_map import ConfigMap, check_flag, check_size
from keras_transformers.convert.family import Family, Writer
from keras_transformers.convert.folder import Folder
from keras_transformers.convert.name_map import Blocks, NameMap, prefixed
from keras_transformers.convert.tensors import Form
from keras_transformers.families.bert import files as bert
from keras_transformers.families.deberta.model import MODELS, deberta, with_pooler
from keras_transformers.layers import DistanceEmbedding
from keras_transformers.models.anatomy import anatomy, only

__all__ = ["FAMILY"]

Arguments = dict[str, Any]

_NAMES = NameMap(
    "DeBERTa",
    layers={
        "token_embedding": "deberta.embeddings.word_embeddings",
        "position_embedding": "deberta.embeddings.position_embeddings",
        "segment_embedding": "deberta.embeddings.token_type_embeddings",
        "embeddings_norm": "deberta.embeddings.LayerNorm",
        "distance_embedding": "deberta.encoder.rel_embeddings",
        "distance_norm": "deberta.encoder.LayerNorm",
        "convolution": "deberta.encoder.conv.conv",
        "convolution_norm": "deberta.encoder.conv.LayerNorm",
        "pooler": "pooler.dense",
        "masked_lm_dense": "cls.predictions.transform.dense",
        "masked_lm_norm": "cls.predictions.transform.LayerNorm",
        "mask_logits": "cls.predictions",
        "logits": "classifier",
        "score_dense": "classifier",
        "span_logits": "qa_outputs",
    },
    blocks=Blocks(
        "deberta.encoder.layer.{}",
        {
            **bert.BLOCK,
            "self_attention/query": "attention.self.query_proj",
            "self_attention/key": "attention.self.key_proj",
            "self_attention/value": "attention.self.value_proj",
            "self_attention/distance_key": "attention.self.pos_key_proj",
            "self_attention/distance_query": "attention.self.pos_query_proj",
        },
    ),
    stored={
        "convolution/kernel": ("deberta.encoder.conv.conv.weight", Form(order=(2, 1, 0))),
    },
    rewritten=(
        prefixed("deberta", "embeddings", "encoder"),
        # In transformers' TensorFlow classes.
        (r"\.self\.pos_proj\.", ".self.pos_key_proj."),
        (r"\.self\.pos_q_proj\.", ".self.pos_query_proj."),
        # The head of files with `legacy=False`, and of Microsoft's.
        (r"^lm_predictions\.lm_head\.(dense|LayerNorm)\.", r"cls.predictions.transform.\1."),
        (r"^lm_predictions\.lm_head\.bias$", "cls.predictions.bias"),
    ),
    tied={
        "cls.predictions.decoder.weight": "deberta.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    buffers=(
        "deberta.embeddings.position_ids",
        # Microsoft's files have it, although their configurations do not use it.
        "deberta.embeddings.position_embeddings.weight",
    ),
    required=("token_embedding", "embeddings_norm", "distance_embedding"),
    traits={**bert.ENCODER_TRAITS, "pooler.activation": "gelu"},
)
_NORMS = {"none": False, "layer_norm": True}
_TERMS = ("c2p", "p2c")


def _after_read(file: Path, config: Mapping[str, Any], arguments: Arguments) -> Arguments:
    if config.get("relative_attention", False) is not True:
        raise ValueError(
            f"{file}: relative_attention={config.get('relative_attention')!r:.100}; only true is "
            "supported: without distances, use another family"
        )
    hidden, heads = arguments["hidden_dim"], arguments["num_heads"]
    sizes = {
        "embedding_size": hidden,
        "pooler_hidden_size": hidden,
        "attention_head_size": hidden // heads,
        "conv_groups": 1,
    }
    for field, wanted in sizes.items():
        if config.get(field, wanted) != wanted:
            raise ValueError(
                f"{file}: {field}={config[field]!r:.100}; only {wanted} is supported here"
            )
    norm = config.get("norm_rel_ebd", "none")
    if not isinstance(norm, str) or norm.lower() not in _NORMS:
        raise ValueError(f"{file}: norm_rel_ebd={norm!r:.100}; expected none or layer_norm")
    longest = arguments["max_sequence_length"]
    reach = config.get("max_relative_positions", -1)
    reach = longest if reach == -1 else check_size(file, "max_relative_positions", reach)
    buckets = config.get("position_buckets", -1)
    buckets = None if buckets == -1 else check_size(file, "position_buckets", buckets, least=2)
    if buckets is not None and (buckets % 2 or reach <= buckets // 2 + 1):
        raise ValueError(
            f"{file}: position_buckets={buckets}; expected an even number, below twice "
            f"max_relative_positions={reach}"
        )
    read = {
        **arguments,
        "num_segments": check_size(
            file, "type_vocab_size", config.get("type_vocab_size", 0), least=0
        ),
        "use_position_embedding": check_flag(file, config, "position_biased_input", default=True),
        "distance_terms": _terms(file, config.get("pos_att_type")),
        "max_distance": reach,
        "num_buckets": buckets,
        "share_projections": check_flag(file, config, "share_att_key"),
        "distance_norm": _NORMS[norm.lower()],
    }
    width = check_size(file, "conv_kernel_size", config.get("conv_kernel_size", 0), least=0)
    if not width:
        return read
    if width % 2 == 0:
        raise ValueError(f"{file}: conv_kernel_size={width}; expected an odd number")
    activation = config.get("conv_act", "tanh")
    if not isinstance(activation, str) or activation not in _CONFIG.activations:
        names = ", ".join(sorted(_CONFIG.activations))
        raise ValueError(f"{file}: conv_act={activation!r:.100}; expected one of {names}")
    ours = _CONFIG.activations[activation]
    return {**read, "convolution_width": width, "convolution_activation": ours}


def _terms(file: Path, value: Any) -> tuple[str, ...]:
    """Returns the terms of `pos_att_type`, which may be a list or one string."""
    terms = value.lower().split("|") if isinstance(value, str) else value
    if isinstance(terms, list) and terms and all(isinstance(term, str) for term in terms):
        terms = [term.strip() for term in terms]
        if {*terms} <= {*_TERMS}:
            return tuple(term for term in _TERMS if term in terms)
    raise ValueError(
        f"{file}: pos_att_type={value!r:.100}; expected c2p, p2c or both, as in 'p2c|c2p'"
    )


def _before_write(model: keras.Model, arguments: Arguments) -> tuple[Arguments, dict[str, Any]]:
    """Returns the arguments to write, and the fields of distances, positions and convolution."""
    distances = only(model, DistanceEmbedding)
    attention: Any = anatomy(model, "blocks").blocks[0].self_attention
    layers = {layer.name: layer for layer in model.layers}
    terms = {"p2c": attention.position_to_content, "c2p": attention.content_to_position}
    positions = layers.get("position_embedding")
    length = distances.max_sequence_length or distances.max_distance
    fields: dict[str, Any] = {
        "relative_attention": True,
        "max_relative_positions": distances.max_distance,
        "position_buckets": distances.num_buckets or -1,
        "pos_att_type": [term for term, is_used in terms.items() if is_used],
        "share_att_key": attention.share_projections,
        "norm_rel_ebd": "layer_norm" if "distance_norm" in layers else "none",
        "position_biased_input": positions is not None,
        "type_vocab_size": getattr(layers.get("segment_embedding"), "input_dim", 0),
        "pooler_hidden_size": attention.hidden_dim,
    }
    if "convolution" in layers:
        ours = layers["convolution_activation"].activation.__name__
        theirs = next((x for x, name in _CONFIG.activations.items() if name == ours), ours)
        fields |= {"conv_kernel_size": layers["convolution"].kernel_size[0], "conv_act": theirs}
    if positions is not None:
        length = positions.max_sequence_length
    return {**arguments, "max_sequence_length": length}, fields


_CONFIG: ConfigMap = ConfigMap(
    "deberta-v2",
    required={
        ours: theirs
        for ours, theirs in bert.CONFIG.required.items()
        if ours != "max_sequence_length"
    },
    optional={
        "max_sequence_length": ("max_position_embeddings", 512),
        "dropout": ("hidden_dropout_prob", 0.1),
        "attention_dropout": ("attention_probs_dropout_prob", 0.1),
        "norm_epsilon": ("layer_norm_eps", 1e-7),
        "initializer_range": ("initializer_range", 0.02),
    },
    fixed={"pooler_hidden_act": "gelu"},
    written={"legacy": True},
    after_read=_after_read,
    before_write=_before_write,
)


def _build(**arguments: Any) -> keras.Model:
    return with_pooler(deberta(**arguments))


def _tokenizer(folder: Folder, lowercase: bool) -> Any:
    # Imported here because it needs TensorFlow, which the weights do not.
    from keras_transformers.tokenizers.sentence_pieces.deberta import DebertaTokenizer

    name = "tokenizer_config.json"
    config = folder.json(name, missing_ok=True)
    for field, only_value in (("split_by_punct", False), ("add_prefix_space", True)):
        if config.get(field, only_value) is not only_value:
            raise ValueError(
                f"{folder / name}: {field}={config[field]!r:.100}; only {only_value} is supported "
                "here"
            )
    return DebertaTokenizer(folder, lowercase=config.get("do_lower_case") is True)


FAMILY: Family = Family(
    "deberta-v2",
    MODELS,
    _NAMES,
    _CONFIG,
    _build,
    _tokenizer,
    Writer(
        "DebertaV2",
        tokenizer="DebertaTokenizer",
        tokenizer_class="DebertaV2Tokenizer",
        special_tokens=bert.SPECIAL_TOKENS,
    ),
    parts=("pooler.*", "cls.*", "mask_predictions.*", "classifier.*", "qa_outputs.*"),
    pieces_file="spm.model",
    first_pieces=("[PAD]", "[CLS]", "[SEP]", "[UNK]"),
    vocabulary_file="spm.model",
)
