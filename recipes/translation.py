"""Translation: trains an encoder-decoder on sentence pairs.

Paper:   Vaswani et al. 2017, https://arxiv.org/abs/1706.03762; `--model seq2seq_...`: Bahdanau et
         al. 2014, https://arxiv.org/abs/1409.0473, Luong et al. 2015, .../1508.04025;
         `--encoder-weights`: Rothe et al. 2020 (BERT2Rnd), https://arxiv.org/abs/1907.12461
Data:    Multi30k task 1 (train.de.gz, train.en.gz, val.*, test_2016_flickr.*), or similar files
Command: python recipes/translation.py --data multi30k
         python recipes/translation.py --data multi30k --model seq2seq_multi30k --batch-tokens 4096
             --epochs 18 --learning-rate 2e-3 --warmup-steps 400 --decay cosine --dropout 0.4
             --model-options weight_tying all
         pretrained encoder: --encoder-weights bert/ --learning-rate 5e-4 --dropout 0.1
         Chinese: --source-language en --target-language zh --target-vocabulary-size 8000
Cost:    66 minutes on one thread of a busy machine, 3,600 steps, with --bleu-every 3; recurrent 74
Score:   test_2016_flickr, sacreBLEU 13a, cased / lower-cased; val chose the last weights
                                        greedy          beam 4
         Transformer (bf3a256)          39.85 / 40.11   41.64 / 41.91
         on diversified data (82f3b03)  43.31 / 43.56   43.76 / 44.02   docs/training.md
         seq2seq_multi30k (88e91e4)     32.07 / 32.28   33.42 / 33.65
         seq2seq_multi30k_no_attention  28.39 / 28.54   29.30 / 29.51
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras_transformers.quiet  # before Keras, which loads TensorFlow

import keras_transformers as kt
from keras_transformers import evaluation, runs
from keras_transformers.data.translation import Pair, PairBatches, ParallelFiles
from keras_transformers.evaluation import Perplexity, TokenAccuracy
from keras_transformers.ranges import PositiveInt, Rate, Share
from keras_transformers.training import SwapAverageWeights, TokenCrossentropy


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(ParallelFiles, runs.EncoderDecoderTraining):
    """Trains an encoder-decoder to translate."""

    encoder_weights: Path | None = None  # a pretrained encoder, instead of --model's
    lowercase: bool | None = None  # lower-case texts; None: as in the encoder's files
    bpe_dropout: Share = 0.0  # share of merges skipped, so that words split differently each epoch
    ema: Rate | None = None  # momentum of an exponential moving average of the weights
    bleu_every: PositiveInt = 1  # epochs between translations of the validation set
    name: str = "translation"  # the run's folder in runs_dir


def main(config: Config, run: runs.Run) -> dict[str, Any]:
    """Trains, averages, evaluates and exports; returns the contents of runs/<name>/metrics.json."""
    runs.check_installed("sacrebleu", extra="translation")
    train, val, test = config.read()
    bleu: Any = {"tokenize": evaluation.bleu_tokenizer(config.target_language)}
    search = config.pick("max_sequence_length", "length_penalty")
    with run.scope():
        model, tokenizers = build(config)
        has_own = bool(tokenizers)
        tokenizers += runs.chief_first(
            lambda: config.learn(run.make_folder(), only_targets=has_own)
        )
        greedy = kt.pipelines.Translator(model, *tokenizers, num_beams=1, **search)
        beam = kt.pipelines.Translator(model, *tokenizers, num_beams=config.num_beams, **search)
        batches = PairBatches(train, beam, bpe_dropout=config.bpe_dropout, **config.batching())
        model.compile(
            optimizer=config.optimizer(len(batches), ema=config.ema),
            loss={"logits": TokenCrossentropy(label_smoothing=config.label_smoothing)},
            weighted_metrics={"logits": [Perplexity(), TokenAccuracy()]},
            jit_compile=config.jit_compile,
        )
    averaging = config.averaging()
    callbacks = [*([SwapAverageWeights()] if config.ema else []), averaging]
    fit = run.prepare(
        model,
        batches,
        validation=batches.of(val),
        score=runs.ValidationBleu(val, greedy, **bleu),
        score_every=config.bleu_every,
        **config.monitoring("val_bleu", len(batches), callbacks),
    )
    model.fit(**fit)

    if config.ema:  # Keras applies the averages after the last epoch, not if training stops early
        run.load_last()
    num_tokens = len(run.epochs) * batches.report.num_target_tokens
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
    translations = beam.translate_all(sources)
    by_length = evaluation.bleu_by_length(sources, translations, references, **bleu)
    figures[f"{config.test_split} BLEU by source words"] = by_length
    report = evaluation.translation_report(translations, references, sources, **bleu)
    chosen = f"BLEU, {figures['chosen']}, beam"
    return run.finish(beam, figures, scores=[chosen], reports={config.test_split: report})


def build(config: Config) -> tuple[Any, list[Any]]:
    """Returns the model, and the tokenizer of its encoder if that is pretrained."""
    size, target_size = config.vocabulary_size, config.target_vocabulary_size
    if config.encoder_weights is None:
        return kt.create_model(config.model, **config.model_arguments(size, target_size)), []
    if config.bpe_dropout or config.model != Config.model:
        raise ValueError("--encoder-weights: leave out --model and --bpe-dropout")
    encoder, tokenizer = kt.convert.load_encoder(
        weights=config.encoder_weights, **config.pick("lowercase", "dropout")
    )
    options = {
        **config.model_arguments(target_size or size),
        "pad_token_id": tokenizer.pad_token_id,
    }
    return kt.models.transformer_from_encoder(encoder, **options), [tokenizer]


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
