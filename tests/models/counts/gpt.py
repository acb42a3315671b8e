"""GPT's counts: those of transformers' classes; embeddings and logits share one matrix."""

COUNTS = {
    "gpt_base": 116_534_784,
    "gpt2_small": 124_439_808,
    "gpt2_medium": 354_823_168,
    "gpt2_large": 774_030_080,
    "gpt2_xl": 1_557_611_200,
}
# Built in every run, with fewer layers and rows.
BUILT = {
    "gpt_base": {"vocabulary_size": 1000, "num_layers": 2},
    "gpt2_small": {"vocabulary_size": 1000, "num_layers": 1},
}
PAPERS = ("Radford",)
