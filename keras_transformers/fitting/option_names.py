"""Says what to pass to `fit` for an option of Keras, transformers or another library."""

from collections.abc import Mapping, Sequence

# See `options.unknown_option`.
ADVICE: Mapping[str, Sequence[str]] = {
    "pass data=, such as data=(texts, labels)": (
        *("x", "y", "dataset", "train_data", "train_dataset", "training_data"),
    ),
    "use validation=, which is data, or the share of the training data to hold out": (
        *("validation_data", "validation_split", "validation_dataset", "eval_dataset", "eval_data"),
        *("dev", "dev_data", "val_data"),
    ),
    "use columns=, from the task's column to the data's": (
        *("column_mapping", "column_names", "text_column", "label_column"),
    ),
    "use epochs=": ("num_train_epochs", "num_epochs", "n_epochs", "nb_epoch", "max_epochs"),
    "use batch_size=, for training and validation": (
        *("per_device_train_batch_size", "per_device_eval_batch_size", "train_batch_size"),
        *("eval_batch_size", "validation_batch_size", "per_gpu_train_batch_size"),
    ),
    "use batch_tokens=: this task's batches have a number of tokens": (
        *("batch_size", "per_device_train_batch_size", "per_device_eval_batch_size"),
        *("train_batch_size", "eval_batch_size", "validation_batch_size", "max_tokens"),
    ),
    "use learning_rate=, the peak of a warm-up and linear decay": (
        *("lr", "init_lr", "peak_lr", "max_lr"),
    ),
    "after the warm-up, the learning rate falls linearly; pass optimizer= for another schedule": (
        *("learning_rate_schedule", "lr_schedule", "lr_scheduler", "lr_scheduler_type"),
        *("scheduler", "schedule", "learning_rate_scheduler"),
    ),
    "use optimizer=": ("optim", "optimizers", "epsilon", "adam_epsilon", "beta_1", "adam_beta1"),
    "use warmup_fraction=, a share of all updates": (
        *("warmup_ratio", "warmup_steps", "num_warmup_steps", "warmup_proportion", "warmup"),
    ),
    "use weight_decay=": ("decay", "weight_decay_rate", "l2"),
    "use clip_norm=": ("max_grad_norm", "clipnorm", "global_clipnorm", "gradient_clip_val"),
    "use accumulate=, the number of parts of a batch": (
        *("gradient_accumulation_steps", "accumulate_grad_batches", "accumulation_steps"),
    ),
    "leave it out: conversations are packed, and only what the assistant writes is learned": (
        *("packing", "assistant_only_loss", "completion_only_loss", "train_on_responses_only"),
    ),
    "use recompute=True": ("gradient_checkpointing", "checkpoint_activations"),
    "use seed=": ("random_state", "random_seed", "data_seed"),
    "use folder=: it gets checkpoints, weights and logs, and the same call resumes from it": (
        *("output_dir", "logging_dir", "log_dir", "checkpoint_dir", "save_dir", "runs_dir"),
        *("name", "run_name", "report_to"),
        *("resume", "resume_from_checkpoint", "initial_epoch"),
    ),
    "use checkpoint_every=, steps between checkpoints, with folder=": (
        *("save_steps", "save_strategy", "save_freq", "save_interval"),
    ),
    "use log_every=, steps between figures": ("logging_steps", "logging_strategy", "log_interval"),
    "use quiet=True to hide the progress": (
        *("verbose", "silent", "disable_tqdm", "progress", "show_progress_bar"),
    ),
    "use patience=, or callbacks= with a keras.callbacks.EarlyStopping of your own": (
        *("early_stopping", "early_stopping_patience"),
    ),
    "use monitor=, the figure on validation= by which the best epoch's weights are kept": (
        *("metric_for_best_model", "greater_is_better", "load_best_model_at_end"),
        *("restore_best_weights", "save_best_only"),
    ),
    "use strategy='mirrored' for several GPUs": (
        *("distribute_strategy", "distribution", "devices", "n_gpu", "num_gpus"),
    ),
    "use static_shapes=, the number of shapes that XLA compiles": (
        *("jit_compile", "torch_compile", "pad_to_max_length"),
    ),
    "use lora=, the rank of the updates": ("peft_config", "lora_r", "lora_rank", "rank"),
    "use lora_targets=": ("target_modules", "lora_target_modules"),
    "use calibrate=True, with validation=": (
        *("temperature_scaling", "calibration", "calibrated"),
    ),
    "use abstain_below=, a probability": (
        *("reject_below", "reject_option", "confidence_threshold", "min_confidence", "abstain"),
    ),
    "use class_weight='balanced' or {label: weight}": (
        *("class_weights", "label_weights", "pos_weight", "weight"),
    ),
    "data= may have a column weight, with the weight of each example": (
        *("sample_weight", "sample_weights", "weights"),
    ),
    "use metrics=, Keras metrics that are measured after each epoch": ("compute_metrics",),
    "the task has its own loss; metrics= can measure more": ("loss", "compute_loss", "loss_fn"),
    "the examples are always shuffled, in an order that seed= decides": (
        *("shuffle", "shuffle_buffer_size", "group_by_length"),
    ),
    "use epochs=: each is a whole pass over the data and ends with the validation": (
        *("steps_per_epoch", "max_steps", "validation_steps", "validation_freq", "eval_steps"),
        *("eval_strategy", "evaluation_strategy"),
    ),
    "call keras.config.set_dtype_policy, for example with 'mixed_bfloat16', before load": (
        *("precision", "fp16", "bf16", "mixed_precision", "dtype", "torch_dtype"),
    ),
    "the pipeline decides: keras_transformers.load(..., max_sequence_length=...)": (
        *("max_length", "max_seq_length", "max_seq_len", "max_sequence_length", "truncation"),
    ),
    "the pipeline decides: keras_transformers.load(..., long_texts='windows')": (
        *("long_texts", "window_pooling", "window_overlap", "stride", "sliding_window"),
    ),
    "the pipeline decides: keras_transformers.load(..., labels=[...])": (
        *("labels", "label_names", "num_labels", "num_classes", "id2label", "classes"),
    ),
    "use label_smoothing=": ("label_smoothing_factor", "smoothing"),
    "the model and the task decide; the recipes have options for it": (
        *("dropout", "label_smoothing", "label_smoothing_factor", "lora_dropout"),
    ),
    "train first, then call keras_transformers.export or keras_transformers.save": (
        *("export", "weights_dtype", "save", "push_to_hub"),
    ),
}
