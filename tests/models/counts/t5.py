"""T5's counts: those of Hugging Face's T5ForConditionalGeneration, tied embeddings once."""

COUNTS = {
    "t5_small": 60_506_624,
    "t5_base": 222_903_552,
    "t5_large": 737_668_096,
    "t5_v1_1_small": 76_961_152,
    "t5_v1_1_base": 247_577_856,
    "t5_v1_1_large": 783_150_080,
}
# Built in every run, with fewer layers and rows.
_SMALL = {"vocabulary_size": 1000, "num_encoder_layers": 1, "num_decoder_layers": 1}
BUILT = {"t5_small": _SMALL, "t5_v1_1_small": _SMALL}
PAPERS = ("Raffel",)
