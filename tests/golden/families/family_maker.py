"""What the makers of the families' golden files share; make_<family>.py say what differs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

ROWS, LENGTH = 3, 9


class FamilyMaker:
    """Makes <family>.npz with Hugging Face transformers (the `reference` extra).

    It holds the weights of a tiny random encoder, the random heads of every task, and what the
    models of transformers compute with them: keys "encoder/<tensor>", "<task>/head/<tensor>",
    "<task>/<output>". For families whose padding may be on the left, "left/sequence_output" is
    what the encoder computes then.

    Args:
        family: the file's name, and the prefix of the encoder's tensors.
        classes: start of the names of its classes, such as "Roberta".
        config: options of its configuration.
        encoder_outputs: our output -> transformers' output, of the encoder alone.
        first_token_id: the lowest token id in `inputs`.
        pad_token_id: id of padding, for families whose padding may also be on the left.
        prefix: prefix of the encoder's tensors, if it is not the family.
        num_segments: number of segments, for families that have them.
    """

    def __init__(
        self,
        family: str,
        classes: str,
        config: dict[str, Any],
        encoder_outputs: Mapping[str, str],
        *,
        first_token_id: int = 0,
        pad_token_id: int | None = None,
        prefix: str = "",
        num_segments: int = 0,
    ) -> None:
        self.family, self.classes, self.config = family, classes, config
        self.prefix = prefix or family
        self.first_token_id, self.pad_token_id = first_token_id, pad_token_id
        self.num_segments = num_segments
        logits = {"logits": "logits"}
        spans = {"start_logits": "start_logits", "end_logits": "end_logits"}
        # Task -> class of transformers, options of its configuration, its outputs by our names.
        self.tasks: dict[str, tuple[str, dict[str, Any], Mapping[str, str]]] = {
            "encoder": (f"{classes}Model", {}, encoder_outputs),
            "masked_lm": (f"{classes}ForMaskedLM", {}, {"mask_logits": "logits"}),
            "classifier": (f"{classes}ForSequenceClassification", {"num_labels": 3}, logits),
            "regressor": (
                f"{classes}ForSequenceClassification",
                {"num_labels": 1},
                {"score": "logits"},
            ),
            "tagger": (f"{classes}ForTokenClassification", {"num_labels": 5}, logits),
            "span_extractor": (f"{classes}ForQuestionAnswering", {}, spans),
            "multiple_choice": (f"{classes}ForMultipleChoice", {}, logits),
        }

    def inputs(self, task: str) -> dict[str, np.ndarray]:
        """Three rows of different lengths; for choices two rows of three."""
        random = np.random.default_rng(0)
        lengths = np.array([4, 9, 6])
        size = (ROWS, LENGTH)
        ids = random.integers(self.first_token_id, self.config["vocab_size"], size)
        rows = {
            "token_ids": ids.astype("int32"),
            "padding_mask": np.arange(LENGTH)[None] < lengths[:, None],
        }
        if self.num_segments:
            rows["segment_ids"] = random.integers(0, self.num_segments, size).astype("int32")
        if task != "multiple_choice":
            return rows
        turned = {key: value[[1, 2, 0]] for key, value in rows.items()}
        return {key: np.stack([rows[key], turned[key]]) for key in rows}

    def left_padded_inputs(self) -> dict[str, np.ndarray]:
        """The rows of `inputs` with their padding on the left, which now has its id."""
        right = self.inputs("encoder")
        mask = right["padding_mask"][:, ::-1].copy()
        ids = np.full_like(right["token_ids"], self.pad_token_id)
        ids[mask] = right["token_ids"][right["padding_mask"]]
        return {"token_ids": ids, "padding_mask": mask}

    def model(self, task: str) -> Any:
        """The model of transformers: a random encoder, the same for all tasks, a random head."""
        import torch
        import transformers

        kind, options, _ = self.tasks[task]
        config = getattr(transformers, f"{self.classes}Config")(**self.config, **options)
        found = getattr(transformers, kind)(config).eval()
        # Tied parameters have several names; those of the encoder are the same in all tasks.
        names: dict[Any, str] = {}
        for name, parameter in found.named_parameters(remove_duplicate=False):
            if parameter not in names or name.startswith(f"{self.prefix}."):
                names[parameter] = name
        with torch.no_grad():
            for parameter, name in names.items():
                own = name.removeprefix(f"{self.prefix}.")
                # By its name: not by its place, which differs from task to task.
                torch.manual_seed(sum(map(ord, own if name != own or task == "encoder" else name)))
                is_head = own == name and task != "encoder"
                parameter.copy_((1.5 if is_head else 0.3) * torch.randn_like(parameter))
            if hasattr(found, "tie_weights"):
                found.tie_weights()
        return found

    def outputs(
        self, task: str, given: dict[str, np.ndarray] | None = None
    ) -> dict[str, np.ndarray]:
        """What transformers computes, by the names of our outputs."""
        import torch

        given = given or self.inputs(task)
        theirs = {"token_ids": "input_ids", "segment_ids": "token_type_ids"}
        with torch.no_grad():
            found = self.model(task)(
                attention_mask=torch.tensor(given["padding_mask"].astype("int64")),
                **{
                    theirs[name]: torch.tensor(ids.astype("int64"))
                    for name, ids in given.items()
                    if name in theirs
                },
            )
        return {ours: np.asarray(found[theirs]) for ours, theirs in self.tasks[task][2].items()}

    def tensors(self, task: str) -> dict[str, np.ndarray]:
        """What `save_pretrained` writes: every tensor once, tied ones too."""
        state = self.model(task).state_dict()
        return {name: tensor.detach().numpy() for name, tensor in state.items()}

    def write(self) -> None:
        """Writes the golden file."""
        arrays = {f"encoder/{name}": array for name, array in self.tensors("encoder").items()}
        for task in self.tasks:
            arrays |= {f"{task}/{name}": array for name, array in self.outputs(task).items()}
            arrays |= {
                f"{task}/head/{name}": array
                for name, array in self.tensors(task).items()
                if task != "encoder" and not name.startswith(f"{self.prefix}.")
            }
        if self.pad_token_id is not None:
            left = self.outputs("encoder", self.left_padded_inputs())
            arrays["left/sequence_output"] = left["sequence_output"]
        file = Path(__file__).with_name(f"{self.family}.npz")
        np.savez_compressed(file, **arrays)
        print(f"{file}: {file.stat().st_size} bytes, {len(arrays)} arrays")
