"""The deployment files, checked as far as possible without a cluster."""

from pathlib import Path

import pytest

from keras_transformers.serving.server.settings import read_model_config

yaml = pytest.importorskip("yaml", reason="needs PyYAML: pip install -e .[dev]")

ROOT = Path(__file__).parents[2]
DEPLOYMENT = ROOT / "docs" / "deployment"
METRICS = "/monitoring/prometheus/metrics"


@pytest.fixture(scope="module")
def flags():
    lines = (ROOT / "tests/golden/tf_serving_flags.txt").read_text("utf-8").splitlines()
    return {line for line in lines if line and not line.startswith("#")}


@pytest.fixture(scope="module")
def objects():
    documents = yaml.safe_load_all((DEPLOYMENT / "kubernetes.yaml").read_text("utf-8"))
    return {document["kind"]: document for document in documents}


@pytest.fixture(scope="module")
def container(objects):
    (container,) = objects["Deployment"]["spec"]["template"]["spec"]["containers"]
    return container


def given(arguments):
    return dict(argument.removeprefix("--").split("=", 1) for argument in arguments)


def test_the_config_serves_both_labels():
    translate, *others = read_model_config(DEPLOYMENT / "models.config")
    assert translate.version_labels == {"stable": 1, "canary": 2}
    assert set(translate.version_labels.values()) <= set(translate.version_policy.versions)
    assert {model.name for model in others} == {"fill_mask_en", "sentiment_en"}
    for model in (translate, *others):
        assert (ROOT / "saved_models" / model.base_path.name).is_dir()


def test_compose_uses_documented_flags_and_files_that_are_there(flags):
    compose = yaml.safe_load((DEPLOYMENT / "compose.yaml").read_text("utf-8"))
    service = compose["services"]["models"]
    options = given(service["command"])
    assert set(options) <= flags
    mounted = {v.split(":")[-2]: v.split(":")[-3] for v in service["volumes"]}
    for name in ("model_config_file", "batching_parameters_file", "monitoring_config_file"):
        assert (DEPLOYMENT / mounted[options[name]]).is_file()
    assert all(volume.endswith(":ro") for volume in service["volumes"])
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])


def test_kubernetes_uses_documented_flags_and_its_own_config(flags, objects, container, tmp_path):
    options = given(container["args"])
    assert set(options) <= flags
    data = objects["ConfigMap"]["data"]
    for name in ("model_config_file", "batching_parameters_file", "monitoring_config_file"):
        folder, _, file = options[name].rpartition("/")
        assert (folder, file in data) == ("/config", True)
    for name, text in data.items():
        (tmp_path / name).write_text(text)
    (model,) = read_model_config(tmp_path / "models.config")
    assert model.version_labels == {"stable": 1, "canary": 2}
    assert str(model.base_path).startswith("/models/")
    for probe in ("startupProbe", "readinessProbe"):
        path = container[probe]["httpGet"]["path"]
        assert path == f"/v1/models/{model.name}/labels/stable/metadata"
    assert METRICS in data["monitoring.config"]


def test_kubernetes_objects_have_its_schemas(objects):
    reason = "needs the schemas: pip install kubernetes-validate"
    schemas = pytest.importorskip("kubernetes_validate", reason=reason)
    newest = schemas.latest_version()
    for thing in objects.values():
        schemas.validate(thing, newest, strict=True)
    with pytest.raises(schemas.ValidationError, match="replica"):
        schemas.validate(objects["Deployment"] | {"replica": 2}, newest, strict=True)


def test_kubernetes_objects_fit_each_other(objects, container):
    template = objects["Deployment"]["spec"]["template"]
    labels = template["metadata"]["labels"]
    assert objects["Deployment"]["spec"]["selector"]["matchLabels"] == labels
    assert objects["Service"]["spec"]["selector"] == labels
    assert objects["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    scaled = objects["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]
    name = objects["Deployment"]["metadata"]["name"]
    assert (scaled["kind"], scaled["name"]) == ("Deployment", name)
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"grpc": 8500, "rest": 8501}
    for port in objects["Service"]["spec"]["ports"]:
        assert ports[port["targetPort"]] == port["port"]
    assert template["metadata"]["annotations"]["prometheus.io/path"] == METRICS
    volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)
    config = objects["ConfigMap"]["metadata"]["name"]
    assert volumes["config"]["configMap"]["name"] == config
    assert "cpu" in container["resources"]["requests"]  # the autoscaler measures against it
    grace = template["spec"]["terminationGracePeriodSeconds"]
    pause = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert grace >= pause + int(given(container["args"])["rest_api_timeout_in_ms"]) // 1000


def test_batching_parameters_fit_each_other():
    lines = (DEPLOYMENT / "batching.config").read_text("utf-8").splitlines()
    sizes = [int(line.split(":")[1]) for line in lines if line.startswith("allowed_batch_sizes")]
    assert sizes == sorted(sizes)
    assert f"max_batch_size {{ value: {sizes[-1]} }}" in lines
