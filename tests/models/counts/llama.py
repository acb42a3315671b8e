"""The counts of Llama and its kind: those of Hugging Face's classes, tied matrices once."""

COUNTS = {
    "smollm2_135m": 134_515_008,
    "smollm2_360m": 361_821_120,
    "smollm2_1_7b": 1_711_376_384,
    "llama_2_7b": 6_738_415_616,
    "llama_3_1_8b": 8_030_261_248,
    "llama_3_2_1b": 1_235_814_400,
    "mistral_7b": 7_241_732_096,
    "qwen2_5_0_5b": 494_032_768,
    "qwen3_0_6b": 596_049_920,
}
# Built in every run, with fewer layers and rows.
BUILT = {
    name: {"vocabulary_size": 100, "num_layers": 1}
    for name in ("smollm2_135m", "qwen2_5_0_5b", "qwen3_0_6b")
}
PAPERS = ("Allal", "Touvron", "Dubey", "Jiang", "Yang")
