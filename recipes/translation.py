"""Translation: trains an encoder-decoder on pairs of sentences, text in, translation out.

Paper:   Vaswani et al. 2017, https://arxiv.org/abs/1706.03762; `--model seq2seq_...`: Bahdanau et
         al. 2014, https://arxiv.org/abs/1409.0473, Luong et al. 2015, .../1508.04025
Data:    Multi30k task 1 (train.de.gz, train.en.gz, val.*, test_2016_flickr.*), or files named alike
Command: python recipes/translation.py --data multi30k
Cost:    66 minutes on one thread of a machine that had other work (with --bleu-every 3), 3,600
         steps, 3,361 target tokens a second, validation included
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
import time
from pathlib import Path
from typing import Any

import keras

import keras_transformers as kt
from keras_transformers.data.translation import encoded_pairs as data
from keras_transformers.data.translation.parallel_text import multi30k_files, read_multi30k
from keras_transformers.evaluation.bleu import bleu_by_length
from keras_transformers.evaluation.perplexity import Perplexity, TokenAccuracy
from keras_transformers.inspection import attention_pictures, update_cost
from keras_transformers.pipelines.translation import Translator, check_encoder_decoder
from keras_transformers.runs import run as runs
from keras_transformers.runs import strategies
from keras_transformers.runs.encoder_decoders import EncoderDecoderTraining
from keras_transformers.runs.resume.callback import Resume
from keras_transformers.runs.validation import BleuValidation, bleu_figures
from keras_transformers.runs.weights_files import write_weights
from keras_transformers.runs.weights_of_choice import choose_weights
from keras_transformers.saved_model.versions import split_target
from keras_transformers.tokenizers.sentencepiece import SentencePieceTokenizer
from keras_transformers.training.averaging import CheckpointAveraging, SwapAverageWeights
from keras_transformers.training.losses import TokenCrossentropy


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(EncoderDecoderTraining):
    """Trains an encoder-decoder to translate."""

    data: Path  # the directory of train.*, val.*, test_2016_flickr.*
    source_language: str = "de"
    target_language: str = "en"
    test_split: str = "test_2016_flickr"
    vocabulary_size: int = 8000  # one vocabulary for both languages
    bpe_dropout: float = 0.0  # cuts words another way each epoch
    ema: float | None = None  # momentum of an exponential moving average of the weights
    bleu_every: int = 1  # epochs between translations of the validation set
    name: str = "translation"  # the run's folder in runs_dir


def main(config: Config) -> dict[str, Any]:
    """Trains, averages, scores, exports; returns what it writes to runs/<name>/metrics.json."""
    started = time.time()
    with runs.user_errors():
        runs.check_installed("matplotlib", "sacrebleu", extra="translation")
        folder = config.begin()
        if config.export and strategies.is_chief():
            split_target(config.export)
        languages = (config.source_language, config.target_language)
        splits = {
            split: list(read_multi30k(config.data, split, languages=languages))
            for split in ("train", "val", config.test_split)
        }
        with config.scope():
            model = kt.create_model(config.model, **config.model_arguments(config.vocabulary_size))
        check_encoder_decoder(model)
        runs.start(folder, config)
        vocabulary = folder / "vocabulary.model"
        if strategies.is_chief() and not vocabulary.is_file():
            files = multi30k_files(config.data, "train", languages=languages)
            SentencePieceTokenizer.train(files, vocabulary, vocabulary_size=config.vocabulary_size)
        strategies.wait_for_all()
        tokenizer = SentencePieceTokenizer(vocabulary)
        length = config.max_sequence_length
        train = data.encode(splits["train"], tokenizer, max_sequence_length=length)
        val = data.encode(splits["val"], tokenizer, max_sequence_length=length)
        print(f"training pairs: {train.report}\nvalidation pairs: {val.report}")
        pairs: data.Epochs = train
        if config.bpe_dropout:
            rate = config.bpe_dropout
            pairs = data.with_dropout(train, tokenizer, dropout=rate, seed=config.seed)
        size = config.batch_tokens * config.accumulate
        batching = {"batch_tokens": size, "seed": config.seed}
        statistics = data.batch_statistics(pairs, **batching)
        print(statistics)
        with config.scope():
            model.compile(
                optimizer=config.optimizer(statistics.num_batches, ema=config.ema),
                loss={"logits": TokenCrossentropy(label_smoothing=config.label_smoothing)},
                weighted_metrics={"logits": [Perplexity(), TokenAccuracy()]},
                jit_compile=False,
            )
        config.prepare(model)
        lengths = {
            "source_token_ids": train.report.num_source_tokens / len(train),
            "target_token_ids": train.report.num_target_tokens / len(train),
        }
        cost = update_cost(model, rows=len(train) / statistics.num_batches, length=lengths)

    search: dict[str, Any] = {
        "max_sequence_length": length,
        "length_penalty": config.length_penalty,
    }
    greedy = Translator(model, tokenizer, num_beams=1, **search)
    beam = Translator(model, tokenizer, num_beams=config.num_beams, **search)

    def draw(*texts: Any) -> Any:
        return attention_pictures(**beam.attend(*texts))

    averaging = CheckpointAveraging(num_checkpoints=config.average)
    validation = BleuValidation(
        greedy.translate_all,
        *zip(*splits["val"], strict=True),
        log_dir=folder / "tensorboard" / "samples",
        draw=draw if beam.has_attention else None,
        every=config.bleu_every,
    )
    resume = Resume(folder / "checkpoints", every=config.checkpoint_every)
    callbacks = [
        *config.forcing(statistics.num_batches),
        *([SwapAverageWeights()] if config.ema else []),
        averaging,
        validation,
        *runs.callbacks(folder, monitor="val_bleu", log=config, **cost._asdict()),
        keras.callbacks.EarlyStopping("val_bleu", mode="max", patience=config.patience),
        resume,
    ]
    with runs.user_errors():
        position = resume.restore(model, callbacks)
    model.fit(
        data.training_dataset(pairs, **batching, skip_batches=position.step),
        steps_per_epoch=statistics.num_batches,
        initial_epoch=position.epoch,
        validation_data=data.evaluation_dataset(val, batch_tokens=config.batch_tokens),
        epochs=config.epochs,
        callbacks=callbacks,
        verbose=runs.verbosity(),
    )
    if config.ema:  # Keras puts the averages in at the last epoch only, not where it stops earlier
        strategies.load_weights(model, folder / runs.LAST_WEIGHTS)
    seconds = time.time() - started

    metrics: dict[str, Any] = {
        "parameters": model.count_params(),
        "epochs": resume.epochs,
        "steps": int(model.optimizer.iterations.numpy()),
        "seconds": round(seconds),  # validation included; since the start, or since it was resumed
        "target_tokens_per_second": (len(resume.epochs) - position.epoch)
        * train.report.num_target_tokens
        / seconds,
    }
    measured = {split: splits[split] for split in ("val", config.test_split)}

    def score(name: str) -> float:
        translators = {f"{name}, greedy": greedy.translate_all, f"{name}, beam": beam.translate_all}
        metrics.update(bleu_figures(translators, measured))
        return metrics[f"val BLEU, {name}, beam"]

    metrics["chosen"] = choose_weights(model, averaging, score)  # by val, never by the test set
    if strategies.is_chief():
        write_weights(model, folder / "chosen.weights.h5")
    sources, references = zip(*splits[config.test_split], strict=True)
    by_length = bleu_by_length(sources, beam.translate_all(sources), references)
    metrics[f"{config.test_split} BLEU by source words"] = by_length
    runs.report(folder, metrics)
    if config.export and strategies.is_chief():
        exported = kt.export.translator(
            model,
            tokenizer,
            config.export,
            num_beams=config.num_beams,
            weights_dtype=config.export_dtype,
            scores=runs.scores(metrics, f"BLEU, {metrics['chosen']}, beam"),
            **search,
        )
        print(f"exported: {exported}")
    return metrics


if __name__ == "__main__":
    runs.command_line(main, Config)
