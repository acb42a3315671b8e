"""`kt.save` in Hugging Face's layout: the same pipeline comes back, and transformers reads it."""

import json
import shutil

import encoder_decoder_toys as toys
import numpy as np
import pytest
import roberta_toy
import tiny
import weights_folders
from logged import warnings_in
from tokenizers import Tokenizer
from weights_folders import ENCODERS, LABELS, SHAPE, change_json

import keras_transformers as kt
from keras_transformers.cli import main as cli
from keras_transformers.families.bart.model import bart
from keras_transformers.families.electra.model import electra
from keras_transformers.families.electra.model import with_pooler as electra_with_pooler
from keras_transformers.families.gpt.model import gpt
from keras_transformers.families.marian.model import marian
from keras_transformers.families.pegasus.model import pegasus
from keras_transformers.families.t5.model import t5
from keras_transformers.tokenizers import MarianTokenizer

TASKS = (
    *("classification", "embedding", "fill_mask", "multiple_choice", "question_answering"),
    *("regression", "tagging"),
)
OTHERS = ("next_sentence", "generation", "image_classification")
TEXTS = ["a good film", "", "very long films. a bad one! Naïve cafés in 東京, 23 of them"]
SOURCES = ["two dogs", "a small dog"]
QUICK = {
    "albert": "question_answering",
    "bert": "classification",
    "camembert": "tagging",
    "deberta-v2": "multiple_choice",
    "distilbert": "tagging",
    "electra": "classification",
    "mpnet": "question_answering",
    "roberta": "embedding",
    "xlm-roberta": "fill_mask",
}
ENCODER_PIPELINES = [
    pytest.param(family, task, marks=() if QUICK[family] == task else pytest.mark.slow)
    for family in ENCODERS
    for task in TASKS
]


def pipeline(family, task, folder):
    """A tiny one, whose options are not the defaults."""
    if family == "openai-gpt":
        made = tiny.pipeline("generation")
        first = gpt(
            vocabulary_size=made.tokenizer.vocabulary_size, norm_position="post",
            num_layers=1, num_heads=2, hidden_dim=16, max_sequence_length=24,
        )  # fmt: skip
        return kt.pipelines.TextGenerator(tiny.lively(first), made.tokenizer, max_length=4, top_k=3)
    if family == "modernbert":
        return modern_bert_with_wordpieces(folder)
    if family not in ENCODERS:
        return tiny.pipeline(task)
    made = weights_folders.pipeline(family, task, folder / "vocabulary")
    changes = {
        "classification": {"pair": True, "max_sequence_length": 9},
        "embedding": {"max_sequence_length": 7},
        "fill_mask": {"top_k": 2},
        "multiple_choice": {"max_sequence_length": 9},
        "question_answering": {"no_answer_threshold": 0.5, "offset_unit": "byte"},
        "tagging": {"max_sequence_length": 8},
    }.get(task, {})
    return type(made).restore(made.model, made.tokenizers, **made.config() | changes)


def modern_bert_with_wordpieces(folder):
    encoder = kt.families.modern_bert.modern_bert(
        vocabulary_size=tiny.wordpiece().vocabulary_size, num_layers=2, num_heads=2, hidden_dim=16,
        intermediate_dim=24, max_sequence_length=12,
    )  # fmt: skip
    model = kt.heads.masked_lm(kt.families.modern_bert.with_head(encoder))
    return kt.pipelines.MaskFiller(tiny.lively(model), tiny.wordpiece(), max_sequence_length=12)


def denoiser(build, tokenizer, **options):
    """A BART or a PEGASUS."""
    model = build(
        vocabulary_size=tokenizer.vocabulary_size, num_encoder_layers=1, num_decoder_layers=1,
        num_heads=2, hidden_dim=16, intermediate_dim=24, max_sequence_length=30,
    )  # fmt: skip
    return kt.pipelines.Translator(tiny.lively(model), tokenizer, max_sequence_length=12, **options)


def translator(family, folder, **options):
    """A tiny model; a Marian starts from zeros and finds no padding, as its own do."""
    if family == "bart":
        return denoiser(bart, toys.bart_tokenizer(folder / "files"), **options)
    if family == "pegasus":
        return denoiser(pegasus, toys.pegasus_tokenizer(folder / "files"), **options)
    if family == "t5":
        tokenizer = toys.t5_tokenizer()
        return kt.pipelines.Translator(
            tiny.lively(t5(**toys.T5_SIZES)), tokenizer, max_sequence_length=12, **options
        )
    files = toys.marian_folder(weights_folders.made(folder / "files"))
    sides = [MarianTokenizer(files, side=side) for side in ("source", "target")]
    shape = {"num_encoder_layers": 1, "num_decoder_layers": 1, "num_heads": 2, "hidden_dim": 16}
    model = tiny.lively(
        marian(
            vocabulary_size=sides[0].vocabulary_size, intermediate_dim=24, max_sequence_length=12,
            **shape,
        )
    )  # fmt: skip
    is_pad = np.arange(sides[0].vocabulary_size) == sides[0].pad_token_id
    bias, embeddings = model.get_layer("logits").bias, model.get_layer("token_embedding").embeddings
    bias.assign(np.where(is_pad, -1e4, np.asarray(bias) + 5.0 * (np.arange(len(is_pad)) == 0)))
    embeddings.assign(np.where(is_pad[:, None], 0.0, embeddings))
    return kt.pipelines.Translator(model, *sides, **options)


def same_pipelines(one, other):
    """They have the same type, options, vocabularies and, bit for bit, weights."""
    assert type(one) is type(other)
    assert one.config() == other.config()
    for found, wanted in zip(one.tokenizers.values(), other.tokenizers.values(), strict=True):
        assert found.config() == wanted.config()
        assert list(found.vocabulary) == list(wanted.vocabulary)
    found, wanted = ({v.path: np.asarray(v) for v in p.model.weights} for p in (one, other))
    assert found.keys() == wanted.keys()
    for path, array in wanted.items():
        np.testing.assert_array_equal(found[path], array, err_msg=path)


@pytest.fixture(scope="module")
def classifier_folder(tmp_path_factory):
    """A classifier's folder in Hugging Face's layout; do not change it."""
    folder = tmp_path_factory.mktemp("written") / "classifier"
    return kt.save(tiny.pipeline("classification"), folder, format="huggingface")


@pytest.mark.one_case
@pytest.mark.parametrize("family", ["t5", "marian", "bart", "pegasus"])
def test_the_same_translator_comes_back(family, tmp_path, caplog):
    options = {"rules": "transformers", "force_end": family == "marian"}
    made = translator(family, tmp_path, num_beams=2, length_penalty=0.5, extra_length=3, **options)
    kt.save(made, tmp_path / "hf", format="huggingface")
    same_pipelines(kt.load(tmp_path / "hf"), made)
    assert not warnings_in(caplog)
    written = json.loads((tmp_path / "hf/generation_config.json").read_text())
    assert (written["num_beams"], written["max_length"], written["length_penalty"]) == (2, 13, 0.5)
    assert ("forced_eos_token_id" in written) == (family == "marian")
    if family == "marian":
        alone = kt.pipelines.Translator(made.model, made.tokenizer)
        with pytest.raises(ValueError, match="tokenizers of the side source: .* pass both"):
            kt.save(alone, tmp_path / "alone", format="huggingface")


@pytest.mark.one_case
@pytest.mark.parametrize(("family", "task"), [*ENCODER_PIPELINES, *(("", x) for x in OTHERS)])
def test_the_same_pipeline_comes_back(family, task, tmp_path, caplog):
    made = pipeline(family, task, tmp_path)
    assert kt.save(made, tmp_path / "hf", format="huggingface") == tmp_path / "hf"
    same_pipelines(kt.load(tmp_path / "hf"), made)
    assert not warnings_in(caplog)  # nothing is left out, and nothing is new
    assert (tmp_path / "hf/modules.json").exists() == (task == "embedding")


def bert_with_pieces_of_xlm_roberta(folder):
    """As the multilingual MiniLM."""
    pieces = weights_folders.pipeline("xlm-roberta", "embedding", folder / "vocabulary").tokenizer
    encoder = ENCODERS["bert"][0](vocabulary_size=pieces.vocabulary_size, **SHAPE)
    return kt.pipelines.Embedder(tiny.lively(encoder), pieces)


@pytest.mark.parametrize(
    ("make", "classes"),
    [
        (modern_bert_with_wordpieces, ("ModernBertForMaskedLM", "BertTokenizer")),
        (bert_with_pieces_of_xlm_roberta, ("BertModel", "XLMRobertaTokenizer")),
    ],
)
def test_an_encoder_with_the_tokenizer_of_another_family(make, classes, tmp_path, caplog):
    made = make(tmp_path)
    kt.save(made, tmp_path / "hf", format="huggingface")
    same_pipelines(kt.load(tmp_path / "hf"), made)
    assert not warnings_in(caplog)
    config, tokenizer = (
        json.loads((tmp_path / "hf" / name).read_text())
        for name in ("config.json", "tokenizer_config.json")
    )
    assert (config["architectures"], tokenizer["tokenizer_class"]) == ([classes[0]], classes[1])


def test_wordpiece_folders_have_a_tokenizer_json_and_the_models_own_length(tmp_path):
    made = modern_bert_with_wordpieces(tmp_path)
    kt.save(made, tmp_path / "hf", format="huggingface")
    (tmp_path / "hf/keras_transformers.json").unlink()  # as in folders of transformers' own
    theirs = Tokenizer.from_file(str(tmp_path / "hf/tokenizer.json"))
    ours = made.tokenizer.tokenize(TEXTS).to_list()
    assert [each.ids[1:-1] for each in theirs.encode_batch(TEXTS)] == ours
    assert kt.load(tmp_path / "hf", pipeline="fill_mask").max_sequence_length == 12
    labels = {"pipeline": "classification", "labels": ["bad", "good"]}
    assert kt.load(tmp_path / "hf", **labels).max_sequence_length == 12


def test_a_regressors_scale_and_offset_go_into_its_last_layer(tmp_path):
    plain = tiny.pipeline("regression")
    made = kt.pipelines.TextRegressor(
        plain.model, plain.tokenizer, pair=True, scale=5.0, offset=-2.0
    )
    kt.save(made, tmp_path / "hf", format="huggingface")
    found = kt.load(tmp_path / "hf")
    assert (found.scale, found.offset, found.pair) == (1.0, 0.0, True)
    texts = (["a good film", ""], ["", "bad!"])
    wanted, scores = (p.decode(p.encode(*texts))["score"] for p in (made, found))
    np.testing.assert_allclose(scores, wanted, rtol=1e-6)
    assert json.loads((tmp_path / "hf/config.json").read_text())["num_labels"] == 1


def test_nothing_is_written_where_something_is_or_when_it_fails(tmp_path):
    made = tiny.pipeline("classification")
    (tmp_path / "there").mkdir()
    for format in ("huggingface", "keras_transformers"):
        with pytest.raises(FileExistsError, match="there exists: choose another folder"):
            kt.save(made, tmp_path / "there", format=format)
    with pytest.raises(ValueError, match="format='onnx': use one of keras_transformers, huggi"):
        kt.save(made, tmp_path / "new", format="onnx")
    for task, message in (
        (
            "translation",
            "by model 'transformer' with SentencePieceTokenizer fits none of transformers",
        ),
        (
            "translation",
            "MarianMTModel with MarianTokenizer, .*T5ForConditionalGeneration",
        ),
        ("word_embedding", "word_embedding by model .* fits none of transformers' classes"),
    ):
        with pytest.raises(ValueError, match=message):
            kt.save(tiny.pipeline(task), tmp_path / "new", format="huggingface")
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_a_model_that_transformers_would_compute_otherwise_is_refused(tmp_path):
    """Its head has an epsilon of its own, for which config.json has no field."""
    model = kt.heads.masked_lm(tiny.encoder(), norm_epsilon=0.1)
    made = kt.pipelines.MaskFiller(tiny.lively(model), tiny.wordpiece())
    with pytest.raises(ValueError, match="not written, because .* 'mask_logits' of .* differs by"):
        kt.save(made, tmp_path / "hf", format="huggingface")
    assert not list(tmp_path.iterdir())


def test_the_mean_of_all_tokens_has_no_class_of_transformers(tmp_path):
    model = kt.heads.classifier(kt.heads.with_mean_pooling(tiny.encoder()), 2)
    made = kt.pipelines.TextClassifier(model, tiny.wordpiece(), ["bad", "good"])
    with pytest.raises(ValueError, match="BertForSequenceClassification.*token's"):
        kt.save(made, tmp_path / "hf", format="huggingface")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("family", ["roberta", "mpnet"])
def test_padding_must_have_the_id_that_takes_no_position(family, tmp_path):
    if family == "roberta":
        tokenizer = roberta_toy.tokenizer(tmp_path / "vocabulary")
    else:
        tokenizer = kt.tokenizers.MPNetTokenizer(weights_folders.MPNET_VOCABULARY[::-1])
    encoder = ENCODERS[family][0](vocabulary_size=tokenizer.vocabulary_size, **SHAPE)
    made = kt.pipelines.Embedder(encoder, tokenizer)
    with pytest.raises(ValueError, match="'<pad>' .*padding: save"):
        kt.save(made, tmp_path / "hf", format="huggingface")
    assert not (tmp_path / "hf").exists()


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({"options": ["pair"]}, r"keras_transformers.json: options=\['pair'\]; expected an obj"),
        ({"options": {"pairs": True}}, "unexpected keyword argument 'pairs'"),
        ({"options": {"max_sequence_length": 17}}, "max_sequence_length=17: expected at least 3"),
        ({"options": {"pair": "yes"}}, "hf: "),
        ({"task": "tagging", "options": {"pairs": True}}, None),  # not of this head
    ],
)
def test_a_damaged_file_of_options_is_refused(written, message, tmp_path, classifier_folder):
    folder = shutil.copytree(classifier_folder, tmp_path / "hf")
    change_json(folder / "keras_transformers.json", **written)
    if message is None:
        assert not kt.load(folder).pair
        return
    with pytest.raises(ValueError, match=message) as caught:
        kt.load(folder)
    assert str(folder) in str(caught.value)


def test_the_command_converts(tmp_path, classifier_folder, capsys):
    ours, hf = str(tmp_path / "ours"), str(tmp_path / "hf")
    for source, target, format in (
        (str(classifier_folder), ours, "keras_transformers"),
        (ours, hf, "huggingface"),
    ):
        assert cli.main(["convert", source, target, "--format", format]) == 0
        assert capsys.readouterr().out == f"{target}: TextClassifier in the format {format}\n"
    assert (tmp_path / "ours/pipeline.json").is_file()
    same_pipelines(kt.load(hf), kt.load(classifier_folder))
    assert cli.main(["convert", ours, hf, "--format", "huggingface"]) == 2
    assert f"{hf} exists: remove it" in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_writes_onnx(tmp_path, classifier_folder, capsys):
    onnxruntime = pytest.importorskip("onnxruntime")
    file = str(tmp_path / "model.onnx")
    assert cli.main(["convert", str(classifier_folder), file, "--format", "onnx"]) == 0
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    made = kt.load(classifier_folder)
    given = {name: array.numpy() for name, array in made.encode(["a good film"]).items()}
    (found,) = session.run(None, given)
    np.testing.assert_allclose(found, made.model(given)["logits"], atol=1e-5)


def inputs_of(theirs, made, texts):
    """What transformers' tokenizer makes of the texts, as torch tensors."""
    if made.task == "multiple_choice":  # each text once for each of its choices
        text, choices = texts
        count = len(choices[0])
        flat = [each for each in text for _ in range(count)], [c for row in choices for c in row]
        found = _tokens_of(theirs, made, flat)
        return {name: tensor.reshape(len(text), count, -1) for name, tensor in found.items()}
    return _tokens_of(theirs, made, texts)


def _tokens_of(theirs, made, texts):
    return theirs(
        *texts,
        padding=True,
        truncation=True,
        max_length=made.max_sequence_length,
        return_tensors="pt",
        return_token_type_ids="segment_ids" in made.model.input,
    )


def their_outputs(found, key):
    """Hugging Face's outputs in the order of ours."""
    outputs = {name: tensor.numpy() for name, tensor in found.items()}
    return {
        "score": lambda: outputs["logits"][:, 0],
        "next_sentence_logits": lambda: outputs["logits"],
        "mask_logits": lambda: outputs["logits"],
    }.get(key, lambda: outputs[key])()


@pytest.mark.reference
@pytest.mark.parametrize(
    ("family", "task"),
    [(family, task) for family in ENCODERS for task in TASKS if task != "embedding"]
    + [("", "next_sentence"), ("modernbert", "fill_mask")],
)
def test_transformers_answers_alike(family, task, tmp_path):
    import torch
    import transformers

    made = pipeline(family, task, tmp_path)
    folder = kt.save(made, tmp_path / "hf", format="huggingface")
    config = transformers.AutoConfig.from_pretrained(folder)
    if task in ("classification", "tagging"):
        assert config.id2label == dict(enumerate(LABELS))
    kind = getattr(transformers, config.architectures[0])
    model, report = kind.from_pretrained(folder, output_loading_info=True)
    assert not report["missing_keys"] | report["unexpected_keys"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert tokenizer.model_max_length == made.max_sequence_length
    texts = [TEXTS, TEXTS[::-1]][: len(made.text_names)]
    if task == "fill_mask":
        texts = [[f"{text} {tokenizer.mask_token}" for text in TEXTS]]
    if task == "multiple_choice":
        texts = [TEXTS, [[text or "bad", "a film"] for text in TEXTS[::-1]]]
    given = inputs_of(tokenizer, made, texts)
    ours = {name: array.numpy() for name, array in made.encode(*texts).items()}
    np.testing.assert_array_equal(given["input_ids"], ours["token_ids"])
    np.testing.assert_array_equal(given["attention_mask"], ours["padding_mask"])
    if "segment_ids" in ours:
        np.testing.assert_array_equal(given["token_type_ids"], ours["segment_ids"])
    with torch.no_grad():
        found = model.eval()(**given)
    rows, *_, length = ours["token_ids"].shape
    if task == "fill_mask":
        ours["mask_positions"] = np.tile(np.arange(length, dtype="int32"), (rows, 1))
    by_token = task in ("fill_mask", "question_answering", "tagging")
    real = ours["padding_mask"] if by_token else np.ones(rows, bool)
    for name, value in made.model(ours, training=False).items():
        wanted = their_outputs(found, name)
        scale = max(1.0, np.abs(wanted).max())
        np.testing.assert_allclose(np.asarray(value)[real] / scale, wanted[real] / scale, atol=1e-5)
        assert np.ptp(wanted[real]) > 0.01


@pytest.mark.reference
@pytest.mark.parametrize("family", ["gpt2", "openai-gpt"])
def test_transformers_generates_alike(family, tmp_path):
    import torch
    import transformers

    made = pipeline(family, "generation", tmp_path)
    folder = kt.save(made, tmp_path / "hf", format="huggingface")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    prompts = ["a small dog", "", "zwei Hunde"]
    for prompt in prompts:
        given = tokenizer(prompt, return_tensors="pt")
        ours = np.asarray(made._tokens([prompt]).to_tensor())
        np.testing.assert_array_equal(given["input_ids"], ours)
        with torch.no_grad():
            wanted = model(**given).logits.numpy()
        found = np.asarray(made.model({"token_ids": ours}, training=False)["logits"])
        scale = np.abs(wanted).max()
        np.testing.assert_allclose(found / scale, wanted / scale, atol=1e-5)
        written = model.generation_config
        assert written.max_new_tokens == made.options["max_length"]
        assert (written.top_k, written.do_sample) == (made.options["top_k"], True)
        greedy = model.generate(**given, do_sample=False)[0, given["input_ids"].shape[1] :]
        likely = kt.pipelines.TextGenerator(made.model, made.tokenizer, max_length=4, top_k=1)
        assert tokenizer.decode(greedy, skip_special_tokens=True) == likely(prompt).text


@pytest.mark.reference
def test_transformers_sees_alike(tmp_path):
    import torch
    import transformers

    made = tiny.pipeline("image_classification")
    folder = kt.save(made, tmp_path / "hf", format="huggingface")
    model = transformers.AutoModelForImageClassification.from_pretrained(folder).eval()
    assert model.config.id2label == {0: "a", 1: "b"}
    processor = transformers.AutoImageProcessor.from_pretrained(folder)
    images = np.random.default_rng(0).integers(0, 256, (3, 8, 12, 3)).astype("uint8")
    with torch.no_grad():
        wanted = model(**processor(list(images), return_tensors="pt")).logits.numpy()
    found = np.asarray(made.model({"images": images.astype("float32")}, training=False)["logits"])
    np.testing.assert_allclose(found, wanted, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.reference
@pytest.mark.parametrize("options", [{}, {"pooling": "cls", "normalize": False}])
@pytest.mark.parametrize("family", ENCODERS)
def test_sentence_transformers_embeds_alike(family, options, tmp_path):
    package = pytest.importorskip("sentence_transformers")
    build, make_tokenizer = ENCODERS[family]
    tokenizer = make_tokenizer(tmp_path / "vocabulary")
    encoder = build(vocabulary_size=tokenizer.vocabulary_size, **weights_folders.SHAPE)
    made = kt.pipelines.Embedder(tiny.lively(encoder), tokenizer, max_sequence_length=7, **options)
    folder = kt.save(made, tmp_path / "hf", format="huggingface")
    theirs = package.SentenceTransformer(str(folder), device="cpu")
    assert theirs.max_seq_length == 7
    found = np.array([answer.vector for answer in made(TEXTS)])
    wanted = theirs.encode(TEXTS)
    np.testing.assert_allclose(found, wanted, atol=1e-5 * np.abs(wanted).max())


def test_a_classifier_is_of_the_family_whose_pooler_it_has(tmp_path):
    """With embeddings as wide as its layers, ELECTRA differs from BERT only in the activation."""
    encoder = electra_with_pooler(electra(vocabulary_size=len(tiny.VOCABULARY), **SHAPE))
    model = tiny.lively(kt.heads.classifier(encoder, 3))
    classify = kt.pipelines.TextClassifier(model, tiny.wordpiece(), LABELS)
    kt.save(classify, tmp_path / "hf", format="huggingface")
    assert '"ElectraForSequenceClassification"' in (tmp_path / "hf/config.json").read_text()
    same_pipelines(kt.load(tmp_path / "hf"), classify)


@pytest.mark.reference
@pytest.mark.parametrize("num_beams", [1, 4])
@pytest.mark.parametrize("family", ["t5", "marian", "bart", "pegasus"])
def test_transformers_translates_alike(family, num_beams, tmp_path):
    import torch
    import transformers

    options = {"rules": "transformers", "force_end": family == "marian", "extra_length": None}
    made = translator(family, tmp_path, num_beams=num_beams, **options)
    folder = kt.save(made, tmp_path / "hf", format="huggingface")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model, report = transformers.AutoModelForSeq2SeqLM.from_pretrained(
        folder, output_loading_info=True
    )
    missing = {key for key in report["missing_keys"] if "embed_positions" not in key}  # sinusoids
    assert not missing | report["unexpected_keys"]
    given = tokenizer(SOURCES, padding=True, return_tensors="pt")
    ours = np.asarray(made._source(SOURCES))
    np.testing.assert_array_equal(given["input_ids"], ours)
    targets = np.array([[made.tokenizer.start_token_id, 3, 4, 5]] * len(SOURCES))
    inputs = {"source_token_ids": ours, "target_token_ids": targets.astype("int32")}
    found = np.asarray(made.model(inputs, training=False)["logits"])
    with torch.no_grad():
        logits = model.eval()(**given, decoder_input_ids=torch.tensor(targets)).logits.numpy()
        tokens = model.generate(**given)[:, 1:].numpy()
    real = logits > -1e3  # all but padding
    np.testing.assert_allclose(found[real], logits[real], atol=1e-5 * np.abs(logits[real]).max())
    searched = made._hypotheses(SOURCES, 1).token_ids.numpy()[:, 0]
    np.testing.assert_array_equal(searched[:, : tokens.shape[1]], tokens)
    assert [answer.text for answer in made(SOURCES)] == tokenizer.batch_decode(
        tokens, skip_special_tokens=True
    )


@pytest.mark.reference
def test_ctranslate2_finds_the_same_tokens(tmp_path):
    """Its converter takes the folder, and its searches find what ours do.

    Without a length penalty: with one, it stops earlier than transformers.
    """
    ctranslate2 = pytest.importorskip("ctranslate2")
    search = {"rules": "transformers", "length_penalty": 0.0, "extra_length": None}
    made = translator("marian", tmp_path, **search)
    folder = kt.save(made, tmp_path / "hf", format="huggingface")
    converter = ctranslate2.converters.TransformersConverter(str(folder))
    converter.convert(str(tmp_path / "ct2"))
    theirs = ctranslate2.Translator(str(tmp_path / "ct2"), device="cpu")
    texts = [f"{one} {two}" for one in ("a", "two", "near") for two in ("dog", "dogs", "shore")]
    words = np.array(made.tokenizer.vocabulary)
    sources = [
        words[row].tolist() for row in made.tokenizer.tokenize(texts, add_end=True).to_list()
    ]
    for num_beams in (1, 4):
        options = {**made.config(), "num_beams": num_beams}
        translate = kt.pipelines.Translator.restore(made.model, made.tokenizers, **options)
        found = translate._hypotheses(texts, 1)
        rows, lengths = found.token_ids.numpy()[:, 0], found.lengths.numpy()[:, 0]
        ours = [
            [word for word in words[row[:length]] if word != "</s>"]
            for row, length in zip(rows, lengths, strict=True)
        ]
        answers = theirs.translate_batch(
            sources, beam_size=num_beams, length_penalty=0.0, max_decoding_length=12
        )
        assert ours == [answer.hypotheses[0] for answer in answers]
        assert len(set(lengths)) > 1
