"""ELECTRA's counts: those of Hugging Face's ElectraModel."""

COUNTS = {
    "electra_small": 13_483_008,
    "electra_base": 108_891_648,
    "electra_large": 334_092_288,
    "electra_small_generator": 13_483_008,
    "electra_base_generator": 33_511_168,
    "electra_large_generator": 50_999_552,
}
# Built in every run, with fewer layers and rows.
BUILT = {
    name: {"vocabulary_size": 1000, "num_layers": 1}
    for name in ("electra_small", "electra_base_generator")
}
PAPERS = ("Clark",)
