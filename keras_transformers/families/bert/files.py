"""Describes BERT in Hugging Face's files."""

from typing import TYPE_CHECKING, Any

from keras_transformers.convert.config_map import ConfigMap
from keras_transformers.convert.family import Family, Writer
from keras_transformers.convert.folder import Folder
from keras_transformers.convert.keras_backbones import TEXTS, Backbone
from keras_transformers.convert.name_map import Blocks, NameMap, prefixed
from keras_transformers.families.bert.gguf import GGUF
from keras_transformers.families.bert.model import MODELS, bert

if TYPE_CHECKING:
    from keras_transformers.tokenizers.wordpiece import WordPieceTokenizer

__all__ = ["FAMILY"]

BLOCK: dict[str, str] = {
    "self_attention/query": "attention.self.query",
    "self_attention/key": "attention.self.key",
    "self_attention/value": "attention.self.value",
    "self_attention/output": "attention.output.dense",
    "self_attention_norm": "attention.output.LayerNorm",
    "feed_forward/intermediate": "intermediate.dense",
    "feed_forward/output": "output.dense",
    "feed_forward_norm": "output.LayerNorm",
}
ENCODER_TRAITS: dict[str, Any] = {
    "position_embedding.first_position": 0,
    "block.norm": "layer",
    "block.norm_position": "post",
}
NAMES: NameMap = NameMap(
    "BERT",
    layers={
        "token_embedding": "bert.embeddings.word_embeddings",
        "position_embedding": "bert.embeddings.position_embeddings",
        "segment_embedding": "bert.embeddings.token_type_embeddings",
        "embeddings_norm": "bert.embeddings.LayerNorm",
        "pooler": "bert.pooler.dense",
        "masked_lm_dense": "cls.predictions.transform.dense",
        "masked_lm_norm": "cls.predictions.transform.LayerNorm",
        "mask_logits": "cls.predictions",
        "next_sentence_logits": "cls.seq_relationship",
        "logits": "classifier",
        "score_dense": "classifier",
        "span_logits": "qa_outputs",
    },
    blocks=Blocks("bert.encoder.layer.{}", BLOCK),
    rewritten=(prefixed("bert", "embeddings", "encoder", "pooler"),),
    tied={
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    # 0, 1, 2, ..., which old versions saved too.
    buffers=("bert.embeddings.position_ids", "bert.embeddings.token_type_ids"),
    required=("token_embedding", "position_embedding", "segment_embedding"),
    traits={**ENCODER_TRAITS, "pooler.activation": "tanh"},
)
CONFIG: ConfigMap = ConfigMap(
    "bert",
    required={
        "vocabulary_size": "vocab_size",
        "num_layers": "num_hidden_layers",
        "num_heads": "num_attention_heads",
        "hidden_dim": "hidden_size",
        "intermediate_dim": "intermediate_size",
        "max_sequence_length": "max_position_embeddings",
    },
    optional={
        "num_segments": ("type_vocab_size", 2),
        "dropout": ("hidden_dropout_prob", 0.1),
        "attention_dropout": ("attention_probs_dropout_prob", 0.1),
        "norm_epsilon": ("layer_norm_eps", 1e-12),
        "initializer_range": ("initializer_range", 0.02),
    },
    fixed={
        "position_embedding_type": "absolute",
        "is_decoder": False,
        "add_cross_attention": False,
    },
)
# The fields of `tokenizer_config.json` that name its special tokens.
SPECIAL_TOKENS: tuple[str, ...] = ("unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def wordpieces(folder: Folder, lowercase: bool) -> "WordPieceTokenizer":
    """Makes the tokenizer from a folder or from its vocab.txt."""
    # Imported here because it needs TensorFlow, which the weights do not.
    from keras_transformers.tokenizers.wordpiece import WordPieceTokenizer

    return WordPieceTokenizer(folder.file("vocab.txt"), lowercase=lowercase)


FAMILY: Family = Family(
    "bert",
    MODELS,
    NAMES,
    CONFIG,
    bert,
    wordpieces,
    Writer(
        "Bert",
        tokenizer="WordPieceTokenizer",
        tokenizer_class="BertTokenizer",
        reads_tokenizer_json=True,
        special_tokens=SPECIAL_TOKENS,
    ),
    parts=("bert.pooler.*", "cls.*", "classifier.*", "qa_outputs.*"),
    is_default=True,
    gguf=GGUF,
    keras_nlp=Backbone(
        name="BertBackbone",
        fields=(*TEXTS, "num_segments"),
        fixed={"activation": "gelu_approximate", "norm_epsilon": 1e-12},
        has_pooler=True,
    ),
)
