"""Makes mbart.npz with Hugging Face transformers; see encoder_decoder_maker.

python tests/golden/families/make_mbart.py
"""

import runpy
from pathlib import Path
from typing import Any

EncoderDecoderMaker = runpy.run_path(str(Path(__file__).with_name("encoder_decoder_maker.py")))[
    "EncoderDecoderMaker"
]

CONFIG: dict[str, Any] = {
    "vocab_size": 40,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": 30,
    "activation_function": "gelu",
    "scale_embedding": True,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "decoder_start_token_id": 37,  # a language
    "forced_eos_token_id": None,
}
MAKER = EncoderDecoderMaker("mbart", "MBart", {"base": CONFIG}, seed=51)

if __name__ == "__main__":
    MAKER.write()
