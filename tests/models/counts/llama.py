"""The counts of Llama and its kind: those of Hugging Face's classes, tied matrices once."""

COUNTS = {
    "smollm2_135m": 134_515_008,
    "smollm2_360m": 361_821_120,
    "smollm2_1_7b": 1_711_376_384,
    "smollm3_3b": 3_075_098_624,
    "llama_2_7b": 6_738_415_616,
    "llama_3_1_8b": 8_030_261_248,
    "llama_3_2_1b": 1_235_814_400,
    "mistral_7b": 7_241_732_096,
    "phi3_mini": 3_821_079_552,
    "olmo2_1b": 1_484_916_736,
    "olmo2_7b": 7_298_617_344,
    "gemma3_270m": 268_098_176,
    "gemma3_1b": 999_885_952,
    "qwen2_5_0_5b": 494_032_768,
    "qwen3_0_6b": 596_049_920,
}
# Built in every run, with fewer layers and rows.
BUILT = {
    name: {"vocabulary_size": 100, "num_layers": 1}
    for name in ("smollm2_135m", "qwen2_5_0_5b", "qwen3_0_6b", "olmo2_1b")
}
PAPERS = ("Allal", "Bakouch", "Touvron", "Dubey", "Jiang", "Abdin", "OLMo", "Gemma", "Yang")
