"""Makes bert_losses.npz with Hugging Face transformers (the `reference` extra).

    python tests/golden/make_bert_losses.py

Losses of the random BERT of make_bert.py on its inputs, as BertForPreTraining, BertForMaskedLM and
BertForNextSentencePrediction compute them; gradients of the first; logits of the second.
"""

import runpy
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent
FILE = FOLDER / "bert_losses.npz"
# Whose gradients are kept: name in transformers -> key in the file.
GRADIENTS = {
    "bert.embeddings.word_embeddings.weight": "token_embedding",  # tied: two uses, one sum
    "bert.encoder.layer.0.attention.self.query.weight": "query",
    "bert.pooler.dense.weight": "pooler",
    "cls.predictions.transform.dense.weight": "masked_lm_dense",
    "cls.predictions.bias": "mask_bias",
    "cls.seq_relationship.weight": "next_sentence",
}


def targets() -> dict[str, np.ndarray]:
    """What belongs to the inputs of make_bert.py: one of its masked positions does not count."""
    return {
        "mask_ids": np.array([[7, 0], [12, 49], [3, 31]], "int32"),
        "mask_weights": np.array([[1, 0], [1, 1], [1, 1]], "float32"),
        "next_sentence_label": np.array([0, 1, 1], "int32"),
    }


def outputs() -> dict[str, np.ndarray]:
    """What transformers computes."""
    import torch
    import transformers

    make_bert = runpy.run_path(str(FOLDER / "make_bert.py"))
    inputs, wanted = make_bert["random_inputs"](), targets()
    rows = np.arange(3)[:, None]
    labels = np.full((3, 11), -100)
    counts = np.where(wanted["mask_weights"] > 0, wanted["mask_ids"], -100)
    labels[rows, inputs["mask_positions"]] = counts
    arguments = {
        "input_ids": torch.tensor(inputs["token_ids"]).long(),
        "token_type_ids": torch.tensor(inputs["segment_ids"]).long(),
        "attention_mask": torch.tensor(inputs["padding_mask"]).long(),
    }
    both = make_bert["random_model"]("gelu")
    next_sentence_label = torch.tensor(wanted["next_sentence_label"]).long()
    total = both(
        **arguments, labels=torch.tensor(labels), next_sentence_label=next_sentence_label
    ).loss
    total.backward()
    parameters = dict(both.named_parameters())
    gradients = {f"gradient/{k}": parameters[n].grad.numpy() for n, k in GRADIENTS.items()}

    def loss_and_logits(kind, **targets):
        model = kind(both.config).eval()
        # Not strict: each has only some of the weights.
        unknown = model.load_state_dict(both.state_dict(), strict=False).missing_keys
        assert not unknown, unknown
        with torch.no_grad():
            result = model(**arguments, **targets)
        return result.loss.numpy(), result.logits.numpy()

    mask_loss, mask_logits = loss_and_logits(
        transformers.BertForMaskedLM, labels=torch.tensor(labels)
    )
    next_sentence_loss, _ = loss_and_logits(
        transformers.BertForNextSentencePrediction, labels=next_sentence_label
    )
    return gradients | {
        "loss": total.detach().numpy(),
        "mask_loss": mask_loss,
        "next_sentence_loss": next_sentence_loss,
        "masked_lm_logits": mask_logits[rows, inputs["mask_positions"]],
    }


def main() -> None:
    """Writes the file."""
    np.savez_compressed(FILE, **outputs())


if __name__ == "__main__":
    main()
