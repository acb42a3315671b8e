"""Makes mask_tokens.json with Hugging Face transformers (the `reference` extra).

    python tests/golden/make_mask_tokens.py

Token ids of texts with [MASK] in them, whole and cut to some lengths.
"""

import json
from pathlib import Path

FILE = Path(__file__).parent / "mask_tokens.json"
VOCABULARY = [
    *(
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "paris",
        "is",
        "the",
        "of",
        "france",
        "capital",
    ),
    *(".", "[", "]", "mask", "un", "##able", "able", "##s", "s", "ma", "sk", ",", "m", "##ask"),
]
TEXTS = [
    "Paris is the [MASK] of France.",
    "[MASK]",
    "[MASK][MASK] [MASK]",
    "no mask",
    "",
    " ",
    "[mask] [Mask] [ MASK ] [MASK MASK]",
    "un[MASK]able",
    "[MASK]s, [MASK].",
    "[[MASK]]",
    "[MASK",
    "MASK]",
    "[MA\u200bSK] [MA\x00SK]",  # [MASK] to the eye, or once cleaned
    "the [MASK]\u00a0\t\n[MASK] \u4e2d[MASK]\u4e2d",
    "[MASK]" * 9,
    "the capital of the [MASK] is the capital of [MASK].",
]
LENGTHS = [3, 4, 5, 8, 32]


def golden() -> dict[str, list[list[int]]]:
    """Length -> ids of each text, packed to at most that length."""
    import transformers

    tokenizer = transformers.BertTokenizer(
        vocab={token: token_id for token_id, token in enumerate(VOCABULARY)}, do_lower_case=True
    )
    return {
        str(length): tokenizer(TEXTS, truncation=True, max_length=length)["input_ids"]
        for length in LENGTHS
    }


def main() -> None:
    """Writes the file."""
    FILE.write_text(json.dumps(golden(), separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
