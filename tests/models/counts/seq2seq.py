"""The recurrent models' counts; test_seq2seq.py counts the parts of the first two."""

COUNTS = {
    "rnnsearch_50": 80_441_000,
    "luong_global": 221_082_000,
    "seq2seq_multi30k": 5_701_024,
    "seq2seq_multi30k_no_attention": 6_421_920,
}
# Built in every run, with fewer layers and rows.
BUILT = {
    "rnnsearch_50": {"vocabulary_size": 1000},
    "luong_global": {"vocabulary_size": 1000, "num_encoder_layers": 2, "num_decoder_layers": 2},
    "seq2seq_multi30k": {},
    "seq2seq_multi30k_no_attention": {},
}
PAPERS = ("Bahdanau", "Luong", "Cho")
