"""Packs a tiny Qwen3-Embedding and Qwen3-Reranker with what the original libraries compute.

    python tests/golden/make_qwen3_search.py

It needs the extra `reference`: sentence-transformers makes and runs the embedder, and the code in
Qwen3-Reranker's model card scores documents with transformers. The weights are random.
"""

import base64
import gzip
import json
import tempfile
from pathlib import Path

import numpy as np

FILE = Path(__file__).with_name("qwen3_search.json.gz")
END, START_OF_TURN, END_OF_TURN = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
WORDS = (
    "Given a web search query, retrieve relevant passages that answer the query\n"
    "Judge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no". yes no yes no yes no system user '
    "assistant Instruct: Query: Document: <think>\n\n</think>\n\n where do dogs run"
)
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SIZES = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
}
TASK = (
    "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"
)
TEXTS = ["where do dogs run", "no", "Dogs run on the beach, in the evening, and sleep at noon."]
QUERIES = ["where do dogs run", "Who sings?"]
DOCUMENTS = ["Dogs run on the beach.", "no", "Rain, all day long. " * 30]
LENGTH = 160  # cuts the last document
# As in the model card.
INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
OTHER_INSTRUCTION = "Find the passages about animals"
PREFIX = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
    'the Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
    "<|im_start|>user\n"
)
SUFFIX = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"


def tokenizer(*, ends: bool):
    """A byte-level tokenizer like Qwen's, which ends texts with a token if it is an embedder's."""
    import transformers
    from tokenizers import (
        AddedToken,
        Regex,
        Tokenizer,
        decoders,
        models,
        normalizers,
        pre_tokenizers,
        processors,
        trainers,
    )

    made = Tokenizer(models.BPE())
    made.normalizer = normalizers.NFC()
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=340, initial_alphabet=sorted(alphabet), show_progress=False
    )
    made.train_from_iterator([WORDS] * 2, trainer)
    made.add_special_tokens([END, START_OF_TURN, END_OF_TURN])
    made.add_tokens([AddedToken(name, normalized=False) for name in ("<think>", "</think>")])
    made.decoder = decoders.ByteLevel()
    byte_level = processors.ByteLevel(trim_offsets=False)
    template = processors.TemplateProcessing(
        single=f"$A {END}", pair=f"$A $B {END}", special_tokens=[(END, made.token_to_id(END))]
    )
    made.post_processor = processors.Sequence([byte_level, template]) if ends else byte_level
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token=END_OF_TURN, pad_token=END, padding_side="left"
    )


def random_model(kind: str, size: int, ends: int, **fields):
    """A model of transformers with random weights."""
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.Qwen3Config(vocab_size=size, eos_token_id=ends, bos_token_id=ends,
                                      **SIZES, **fields)  # fmt: skip
    model = getattr(transformers, kind)(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model


def make_embedder(folder: Path) -> None:
    """Saves a folder in the layout of Qwen3-Embedding."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules

    with tempfile.TemporaryDirectory() as scratch:
        tokens = tokenizer(ends=True)
        random_model("Qwen3Model", len(tokens), tokens.convert_tokens_to_ids(END)).save_pretrained(
            scratch
        )
        tokens.save_pretrained(scratch)
        encoder = modules.Transformer(scratch, max_seq_length=LENGTH)
        pooling = modules.Pooling(SIZES["hidden_size"], pooling_mode="lasttoken")
        model = SentenceTransformer(
            modules=[encoder, pooling, modules.Normalize()],
            device="cpu",
            prompts={"query": TASK, "document": ""},
        )
        model.save(str(folder))


def make_reranker(folder: Path, *, tied: bool) -> None:
    """Saves a folder in the layout of Qwen3-Reranker."""
    tokens = tokenizer(ends=False)
    model = random_model(
        "Qwen3ForCausalLM",
        len(tokens),
        tokens.convert_tokens_to_ids(END_OF_TURN),
        tie_word_embeddings=tied,
    )
    model.save_pretrained(folder)
    tokens.save_pretrained(folder)


def embeddings(folder: Path) -> dict[str, list]:
    """The vectors of sentence-transformers, without and with the prompt for queries."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu")
    return {
        "plain": model.encode(TEXTS).tolist(),
        "query": model.encode(TEXTS, prompt_name="query").tolist(),
    }


def card_scores(folder: Path, instruction: str, *, length: int = LENGTH) -> list[list[float]]:
    """The scores of the model card's code for each query and document."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokens = AutoTokenizer.from_pretrained(str(folder), padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(str(folder)).eval()
    prefix, suffix = (tokens.encode(text, add_special_tokens=False) for text in (PREFIX, SUFFIX))
    pairs = [
        f"<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}"
        for query in QUERIES
        for document in DOCUMENTS
    ]
    inputs = tokens(
        pairs,
        padding=False,
        truncation="longest_first",
        return_attention_mask=False,
        max_length=length - len(prefix) - len(suffix),
    )
    inputs["input_ids"] = [prefix + ids + suffix for ids in inputs["input_ids"]]
    inputs = tokens.pad(inputs, padding=True, return_tensors="pt", max_length=length)
    with torch.no_grad():
        logits = model(**inputs).logits[:, -1, :]
    both = logits[:, [tokens.convert_tokens_to_ids("no"), tokens.convert_tokens_to_ids("yes")]]
    scores = torch.nn.functional.log_softmax(both, dim=1)[:, 1].exp()
    return scores.reshape(len(QUERIES), len(DOCUMENTS)).tolist()


def packed(folder: Path) -> dict[str, str]:
    """The files of a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        str(path.relative_to(folder)): base64.b64encode(path.read_bytes()).decode()
        for path in files
        if path.suffix != ".md"
    }


def main() -> None:
    """Writes the file."""
    with tempfile.TemporaryDirectory() as scratch:
        embedder, tied, untied = (Path(scratch, name) for name in ("embedder", "tied", "untied"))
        make_embedder(embedder)
        make_reranker(tied, tied=True)
        make_reranker(untied, tied=False)
        found = {
            "embedder": {"files": packed(embedder), **embeddings(embedder)},
            **{
                folder.name: {
                    "files": packed(folder),
                    "scores": card_scores(folder, INSTRUCTION),
                    "other_scores": card_scores(folder, OTHER_INSTRUCTION),
                }
                for folder in (tied, untied)
            },
        }
    FILE.write_bytes(gzip.compress(json.dumps(found).encode(), mtime=0))
    print(f"{FILE}: {FILE.stat().st_size} bytes", np.array(found["tied"]["scores"]).round(3))


if __name__ == "__main__":
    main()
