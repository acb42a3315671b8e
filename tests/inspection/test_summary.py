import re

import pytest

import keras_transformers as kt

BLOCK = [
    ("self_attention", "(None, None, 768)", 2_362_368),
    ("query", "(None, None, 768)", 590_592),
    ("key", "(None, None, 768)", 590_592),
    ("value", "(None, None, 768)", 590_592),
    ("output", "(None, None, 768)", 590_592),
    ("dropout", "(None, 12, None, None)", 0),
    ("self_attention_norm", "(None, None, 768)", 1_536),
    ("feed_forward", "(None, None, 768)", 4_722_432),
    ("intermediate", "(None, None, 3072)", 2_362_368),
    ("dropout", "(None, None, 3072)", 0),
    ("output", "(None, None, 768)", 2_360_064),
    ("feed_forward_norm", "(None, None, 768)", 1_536),
    ("self_attention_dropout", "(None, None, 768)", 0),
    ("feed_forward_dropout", "(None, None, 768)", 0),
]


def test_a_summary_of_one_length_shows_its_shapes():
    printed = []
    model = kt.bert_tiny(vocabulary_size=100)
    for length in (512, None):
        kt.inspection.summary(model, length=length, print_fn=printed.append, line_length=120)
    assert "(None, 512, 128)" in printed[0]
    assert "(None, None, 128)" in printed[1]
    count = f"Total params: {model.count_params():,}"
    assert count in printed[0]
    assert count in printed[1]
    for wrong, message in ((0, "length=0: must be 1"), (513, "length=513: .* 512 positions")):
        with pytest.raises(ValueError, match=message):
            kt.inspection.summary(model, length=wrong)


def test_keras_own_summary_of_bert_base_opens_its_blocks(monkeypatch):
    monkeypatch.setenv("COLUMNS", "240")
    model = kt.heads.pretrainer(kt.bert_base(vocabulary_size=30_000))
    printed = []
    model.summary(print_fn=printed.append, expand_nested=True, line_length=220)
    cells = [line.split("│")[1:4] for line in "\n".join(printed).splitlines() if "(" in line]
    rows = [
        (re.sub(r"_\d+$", "", name), shape.strip(), int(count.replace(",", "")))
        for name, shape, count in (
            (cell[0].split("(")[0].strip(" └"), *cell[1:]) for cell in cells if len(cell) == 3
        )
    ]
    first = rows.index(("encoder_layer", "(None, None, 768)", 7_087_872))
    for block in range(12):
        start = first + block * (len(BLOCK) + 1)
        assert rows[start + 1 : start + 1 + len(BLOCK)] == BLOCK
    assert "Total params: 109,705,010" in printed[0]
