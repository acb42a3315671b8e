"""Translation: trains an encoder-decoder on pairs of sentences, text in, translation out.

Paper:   Vaswani et al. 2017, https://arxiv.org/abs/1706.03762; `--model seq2seq_...`: Bahdanau et
         al. 2014, https://arxiv.org/abs/1409.0473, Luong et al. 2015, .../1508.04025
Data:    Multi30k task 1 (train.de.gz, train.en.gz, val.*, test_2016_flickr.*), or similar files
Command: python recipes/translation.py --data multi30k
Cost:    66 minutes on one thread of a busy machine (with --bleu-every 3), 3,600 steps, 3,361 target
         tokens per second, validation included
Score:   test_2016_flickr, sacreBLEU 13a, cased / lower-cased (bf3a256); val chose the last weights
                                  greedy          beam 4          val, beam 4
         last epoch               39.85 / 40.11   41.64 / 41.91   42.20
         average of the last 5    40.19 / 40.41   40.58 / 40.83   41.24
         --vocabulary-size 4000 --decay cosine --warmup-steps 1000 --epochs 36 --patience 36
         (41fe354), cased: last 38.64 greedy, 39.82 beam 4; average of 5 38.55 and 39.90.
         --label-smoothing 0 --bleu-every 3 (e23107f; 61 minutes), cased:
         last 38.01 greedy, 39.52 beam 4; average of 5 38.50 and 39.43
         Recurrent (88e91e4), --batch-tokens 4096 --epochs 18 --learning-rate 2e-3 --warmup-steps
         400 --decay cosine --dropout 0.4 --model-options weight_tying all, last weights:
         seq2seq_multi30k (4,681,024 parameters; 74 minutes) 32.07 / 32.28, beam 33.42 / 33.65;
         seq2seq_multi30k_no_attention (5,401,920; 55 minutes) 28.39 / 28.54, beam 29.30 / 29.51;
         by length of the source: benchmarks/results/attention_by_length.txt
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras_transformers.quiet  # before Keras, which loads TensorFlow

import keras_transformers as kt
from keras_transformers import evaluation, runs
from keras_transformers.data.translation import Pair, PairBatches, multi30k_files, read_multi30k
from keras_transformers.evaluation import Perplexity, TokenAccuracy
from keras_transformers.training import CheckpointAveraging, SwapAverageWeights, TokenCrossentropy


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(runs.EncoderDecoderTraining):
    """Trains an encoder-decoder to translate."""

    data: Path  # folder of train.*, val.*, test_2016_flickr.*
    source_language: str = "de"
    target_language: str = "en"
    test_split: str = "test_2016_flickr"
    vocabulary_size: int = 8000  # one vocabulary for both languages
    bpe_dropout: float = 0.0  # share of merges skipped, so words split anew in each epoch
    ema: float | None = None  # momentum of an exponential moving average of the weights
    bleu_every: int = 1  # epochs between translations of the validation set
    name: str = "translation"  # the run's folder in runs_dir


def main(config: Config, run: runs.Run) -> dict[str, Any]:
    """Trains, averages, scores, exports; returns what it writes to runs/<name>/metrics.json."""
    train, val, test = read(config)
    with run.scope():
        model = kt.create_model(config.model, **config.model_arguments(config.vocabulary_size))
    tokenizer = runs.chief_first(lambda: learn(config, run.make_folder() / "vocabulary.model"))
    bleu: Any = {"tokenize": evaluation.bleu_tokenizer(config.target_language)}
    search = config.pick("max_sequence_length", "length_penalty")
    greedy = kt.pipelines.Translator(model, tokenizer, num_beams=1, **search)
    beam = kt.pipelines.Translator(model, tokenizer, num_beams=config.num_beams, **search)
    batches = PairBatches(train, beam, bpe_dropout=config.bpe_dropout, **config.batching())
    with run.scope():
        model.compile(
            optimizer=config.optimizer(len(batches), ema=config.ema),
            loss={"logits": TokenCrossentropy(label_smoothing=config.label_smoothing)},
            weighted_metrics={"logits": [Perplexity(), TokenAccuracy()]},
            jit_compile=config.jit_compile,
        )
    averaging = CheckpointAveraging(num_checkpoints=config.average)
    callbacks = [*([SwapAverageWeights()] if config.ema else []), averaging]
    options: dict[str, Any] = {
        "validation": batches.of(val),
        "score": runs.ValidationBleu(val, greedy, **bleu),
        "score_every": config.bleu_every,
        **config.fit_options("val_bleu", len(batches), callbacks),
    }
    arguments = run.fit_arguments(model, batches, **options)
    model.fit(**arguments)

    if config.ema:  # Keras applies the averages at the last epoch, not if training stops earlier
        run.load_last()
    num_tokens = (len(run.epochs) - arguments["initial_epoch"]) * batches.report.num_target_tokens
    figures: dict[str, Any] = {
        "parameters": model.count_params(),
        "steps": int(model.optimizer.iterations.numpy()),
        "target_tokens_per_second": num_tokens / run.seconds,
    }
    splits = {"val": val, config.test_split: test}

    def measure(name: str) -> float:
        for kind, translator in (("greedy", greedy), ("beam", beam)):
            figures.update(bleu_figures(translator, f"{name}, {kind}", splits, **bleu))
        return figures[f"val BLEU, {name}, beam"]

    figures["chosen"] = run.keep_better(averaging, measure)  # by val, never by the test set
    sources, references = zip(*test, strict=True)
    by_length = evaluation.bleu_by_length(sources, beam.translate_all(sources), references, **bleu)
    figures[f"{config.test_split} BLEU by source words"] = by_length
    return run.finish(beam, figures, scores=[f"BLEU, {figures['chosen']}, beam"])


def read(config: Config) -> list[list[Pair]]:
    """Returns the pairs of train, val and the test set."""
    runs.check_installed("sacrebleu", extra="translation")
    languages = (config.source_language, config.target_language)
    splits = ("train", "val", config.test_split)
    return [list(read_multi30k(config.data, split, languages=languages)) for split in splits]


def learn(config: Config, path: Path) -> kt.tokenizers.SentencePieceTokenizer:
    """Returns the tokenizer of both languages, learned once from the training set."""
    if path.is_file():
        return kt.tokenizers.SentencePieceTokenizer(path)
    languages = (config.source_language, config.target_language)
    files = multi30k_files(config.data, "train", languages=languages)
    size = config.vocabulary_size
    return kt.tokenizers.SentencePieceTokenizer.train(files, path, vocabulary_size=size)


def bleu_figures(
    translator: Any, name: str, splits: Mapping[str, Sequence[Pair]], **bleu: Any
) -> dict[str, Any]:
    """Returns BLEU on each split, cased and lower-cased, with sacreBLEU's signatures."""
    figures: dict[str, Any] = {}
    for split, pairs in splits.items():
        sources, references = zip(*pairs, strict=True)
        translations = translator.translate_all(sources)
        for case, lowercase in (("", False), (", lower-cased", True)):
            result = evaluation.corpus_bleu(translations, references, lowercase=lowercase, **bleu)
            figures[f"{split} BLEU, {name}{case}"] = result.score
            figures[f"signature{case}"] = result.signature
    return figures


if __name__ == "__main__":
    runs.command_line(main, Config)
