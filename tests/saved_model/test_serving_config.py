import pytest

from keras_transformers.saved_model.models_config import ModelsConfig
from keras_transformers.saved_model.serving_config import write_serving_config

pytest.importorskip(
    "tensorflow_serving.config.model_server_config_pb2",
    reason="needs tensorflow-serving-api: pip install -e .[serving]",
)


@pytest.fixture
def bases(tmp_path):
    found = [tmp_path / "models" / name for name in ("sentiment", "translate")]
    for base in found:
        for number in ("1", "2"):
            (base / number).mkdir(parents=True)
    return found


def test_all_files_and_the_flags_that_name_them(bases, tmp_path):
    output = tmp_path / "config"
    written = write_serving_config(
        bases,
        output,
        server_root="/models",
        batch_sizes=(8, 1, 32),
        batch_timeout_micros=500,
        num_batch_threads=4,
        monitoring=True,
    )
    assert dict(written) == {
        output / "models.config": f"--model_config_file={output}/models.config "
        "--model_config_file_poll_wait_seconds=60",
        output / "batching.config": "--enable_batching "
        f"--batching_parameters_file={output}/batching.config",
        output / "monitoring.config": f"--monitoring_config_file={output}/monitoring.config",
    }
    models = ModelsConfig(output / "models.config")
    assert [models.entry(base).base_path for base in bases] == [
        "/models/sentiment",
        "/models/translate",
    ]
    assert models.served(bases[0]) == {2}
    assert (output / "batching.config").read_text() == (
        "max_batch_size { value: 32 }\n"
        "batch_timeout_micros { value: 500 }\n"
        "max_enqueued_batches { value: 100 }\n"
        "num_batch_threads { value: 4 }\n"
        "allowed_batch_sizes: 1\n"
        "allowed_batch_sizes: 8\n"
        "allowed_batch_sizes: 32\n"
    )
    assert (output / "monitoring.config").read_text() == (
        'prometheus_config {\n  enable: true\n  path: "/monitoring/prometheus/metrics"\n}\n'
    )


def test_only_what_is_asked_for_and_labels_stay(bases, tmp_path):
    models = ModelsConfig(tmp_path / "models.config")
    models.set_labels(bases[0], {"stable": 1})
    models.write()
    ((path, flags),) = write_serving_config(bases, tmp_path)
    assert path.name == "models.config"
    assert flags.endswith(" --allow_version_labels_for_unavailable_models=true")
    models = ModelsConfig(tmp_path / "models.config")
    assert models.labels(bases[0]) == {"stable": 1}
    assert models.entry(bases[1]).base_path == str(bases[1])


def test_what_cannot_be(bases, tmp_path):
    with pytest.raises(FileNotFoundError, match="no version folder; publish"):
        write_serving_config([tmp_path / "nobody"], tmp_path)
    with pytest.raises(ValueError, match=r"\['sentiment'\].*once"):
        write_serving_config([bases[0], bases[0]], tmp_path)
    with pytest.raises(ValueError, match="0: batch sizes"):
        write_serving_config(bases, tmp_path, batch_sizes=(0,))
    assert not (tmp_path / "models.config").exists()
