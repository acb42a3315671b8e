"""Makes the files in fasttext/ with the reference: the package fasttext-wheel, or fasttext.

    python tests/golden/make_fasttext_models.py [lid.176.ftz]

Classifiers of each kind that fastText trains and quantizes, word vectors, and `answers.json` with
the classifiers' probabilities: file -> text -> label -> probability. With fastText's language
identifier, also `languages.json` with its answers.
"""

import json
import random
import sys
import tempfile
from pathlib import Path

import fasttext

FOLDER = Path(__file__).parent / "fasttext"
WORDS = {
    "en": ["the", "a", "film", "was", "warm", "too", "long", "two", "dogs", "play"],
    "de": ["der", "ein", "hund", "war", "warm", "zwei", "schnee", "ist", "das", "größer"],
    "zh": ["我", "喜欢", "看", "电影", "这部", "很", "好看", "film"],
}
TEXTS = [
    *(
        "two dogs",
        "der hund war größer",
        "这部 电影 很 好看",
        "",
        "warm",
        "so good 😂 é",
        "a  b\tthe",
    ),
    "the film was " * 20,
]
SENTENCES = [
    *(
        "The cat sleeps on the sofa.",
        "Die Größe der Straße ist nicht alles",
        "Кошка спит на диване",
    ),
    *("Le chat est sur la table et il dort.", "El perro corre por el parque todos los días"),
    *(
        "Il gatto dorme sul divano",
        "猫がソファで寝ています",
        "قطة تنام على الأريكة",
        "고양이가 잔다",
    ),
    *("यह हिन्दी का वाक्य है।", "我喜欢看电影", "So good 😂😂 :-)", "", "A Ã©"),
]
SMALL = {"dim": 4, "epoch": 5, "lr": 1.0, "thread": 1, "verbose": 0}
KINDS = {
    "words": {"loss": "softmax"},
    "ngrams": {"loss": "softmax", "wordNgrams": 3, "minn": 2, "maxn": 3, "bucket": 97},
    "tree": {"loss": "hs", "minn": 1, "maxn": 2, "bucket": 53},
    "all": {"loss": "ova"},
    "sampled": {"loss": "ns"},
}
WITH_NGRAMS = {"wordNgrams": 2, "minn": 2, "maxn": 4, "bucket": 1000}


def answers_of(file: Path, texts: list[str]) -> dict[str, dict[str, float]]:
    """Returns text -> label -> probability, of the five likeliest labels."""
    model, answers = fasttext.load_model(str(file)), {}
    for text in texts:
        labels, probabilities = model.predict(text, k=5)
        found = zip(labels, map(float, probabilities), strict=True)
        answers[text] = {label.removeprefix("__label__"): each for label, each in found}
    return answers


def write(answers: dict, name: str) -> None:
    (FOLDER / name).write_text(json.dumps(answers, ensure_ascii=False, indent=1) + "\n")


def main() -> None:
    """Writes the files."""
    FOLDER.mkdir(exist_ok=True)
    rng = random.Random(0)
    answers = {}

    def save(model: "fasttext.FastText._FastText", name: str) -> None:
        model.save_model(str(FOLDER / name))
        answers[name] = answers_of(FOLDER / name, TEXTS)

    with tempfile.TemporaryDirectory() as folder:
        rows = [
            f"__label__{label} {' '.join(rng.choices(words, k=6))}"
            for label, words in WORDS.items()
            for _ in range(30 * len(label + words[0]))
        ]
        rng.shuffle(rows)
        few, many = Path(folder, "few.txt"), Path(folder, "many.txt")
        few.write_text("\n".join(rows) + "\n")
        words = [word for words in WORDS.values() for word in words]
        many.write_text(
            "".join(
                f"__label__{number} {' '.join(rng.choices(words, k=4))} w{number}\n"
                for number in range(260)
            )
        )
        for name, settings in KINDS.items():
            save(fasttext.train_supervised(str(few), **SMALL, **settings), f"{name}.bin")
        for name, loss in (("pruned", "softmax"), ("pruned_tree", "hs")):
            model = fasttext.train_supervised(str(few), **SMALL, **WITH_NGRAMS, loss=loss)
            model.quantize(input=str(few), cutoff=300, qnorm=True, retrain=False)
            save(model, f"{name}.ftz")
        model = fasttext.train_supervised(str(many), **{**SMALL, "dim": 3})
        model.quantize(qout=True)
        save(model, "quantized_labels.ftz")
        model = fasttext.train_unsupervised(str(few), model="cbow", **{**SMALL, "bucket": 50})
        model.save_model(str(FOLDER / "vectors.bin"))
    for name in ("all.bin", "sampled.bin"):
        del answers[name]
    write(answers, "answers.json")
    for file in sys.argv[1:]:
        write(answers_of(Path(file), SENTENCES), "languages.json")


if __name__ == "__main__":
    main()
