"""M2M-100's and NLLB's counts: Hugging Face's parameters."""

COUNTS = {
    "m2m_100_418m": 483_905_536,
    "m2m_100_1_2b": 1_239_470_080,
    "nllb_200_distilled_600m": 615_073_792,
    "nllb_200_distilled_1_3b": 1_370_638_336,
    "nllb_200_3_3b": 3_344_863_232,
}
# Built in every run, with fewer layers and rows.
BUILT = {
    "m2m_100_418m": {"vocabulary_size": 1000, "num_encoder_layers": 1, "num_decoder_layers": 1}
}
PAPERS = ("Fan", "NLLB Team")
