"""The deployment files, checked as far as possible without a cluster and without an account."""

import functools
import importlib
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

import keras_transformers
from keras_transformers.cli import main as cli
from keras_transformers.serving.server.settings import read_model_config

yaml = pytest.importorskip("yaml", reason="needs PyYAML: pip install -e .[dev]")

ROOT = Path(__file__).parents[2]
DEPLOYMENT, PAGE = ROOT / "docs" / "deployment", ROOT / "docs" / "platforms.md"
METRICS = "/monitoring/prometheus/metrics"
SCHEMAS = "needs the platforms' schemas: pip install -r requirements/manifests.txt"
KUBERNETES = ("apps", "autoscaling", "policy", "v1")  # the groups that Kubernetes itself has


@pytest.fixture(scope="module")
def flags():
    lines = (ROOT / "tests/golden/tf_serving_flags.txt").read_text("utf-8").splitlines()
    return {line for line in lines if line and not line.startswith("#")}


def documents(name):
    return list(yaml.safe_load_all((DEPLOYMENT / name).read_text("utf-8")))


def with_gateway():
    """Returns what `kubectl kustomize` does: the objects of kubernetes.yaml, patched."""
    (kustomization,) = documents("kustomization.yaml")
    objects = [thing for name in kustomization["resources"] for thing in documents(name)]
    for patch in kustomization["patches"]:
        (thing,) = (each for each in objects if each["kind"] == patch["target"]["kind"])
        text = patch.get("patch") or (DEPLOYMENT / patch["path"]).read_text("utf-8")
        for operation in yaml.safe_load(text):
            *path, end = operation["path"].removeprefix("/").split("/")
            assert (operation["op"], end) == ("add", "-")
            functools.reduce(lambda part, key: part[key], path, thing).append(operation["value"])
    return objects


def manifests(*groups):
    """Returns the objects of Kubernetes in all files, of these groups of its API."""
    files = {path.stem: documents(path.name) for path in sorted(DEPLOYMENT.glob("*.yaml"))}
    files["kustomization"] = with_gateway()
    return [
        pytest.param(document, id=f"{name}-{document['kind']}")
        for name, things in files.items()
        for document in things
        if isinstance(document, dict) and document.get("apiVersion", "").split("/")[0] in groups
    ]


@pytest.fixture(scope="module")
def objects():
    return {document["kind"]: document for document in documents("kubernetes.yaml")}


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


@pytest.mark.parametrize("thing", manifests(*KUBERNETES))
def test_kubernetes_objects_have_its_schemas(thing):
    schemas = pytest.importorskip("kubernetes_validate", reason=SCHEMAS)
    newest = schemas.latest_version()
    schemas.validate(thing, newest, strict=True)
    with pytest.raises(schemas.ValidationError, match="replica"):
        schemas.validate(thing | {"replica": 2}, newest, strict=True)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
def test_kustomize_adds_the_gateway():
    rendered = subprocess.check_output(["kubectl", "kustomize", DEPLOYMENT], text=True)
    objects = {thing["kind"]: thing for thing in yaml.safe_load_all(rendered)}
    assert objects == {thing["kind"]: thing for thing in with_gateway()}


def test_the_gateway_fits_its_pod():
    objects = {thing["kind"]: thing for thing in with_gateway()}
    pod = objects["Deployment"]["spec"]["template"]["spec"]
    server, gateway = pod["containers"]
    command = cli.parse(gateway["args"])
    assert command.servers == (f"http://127.0.0.1:{server['ports'][1]['containerPort']}",)
    assert [command.port] == [port["containerPort"] for port in gateway["ports"]]
    assert set(command.model) == {"translate_de_en"}  # of the ConfigMap
    mounted = {mount["name"] for mount in gateway["volumeMounts"]}
    assert mounted <= {volume["name"] for volume in pod["volumes"]}
    (port,) = (p for p in objects["Service"]["spec"]["ports"] if p["name"] == "gateway")
    assert port["targetPort"] == gateway["ports"][0]["name"]
    pause = int(gateway["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["terminationGracePeriodSeconds"] >= pause + command.timeout


@pytest.mark.parametrize("thing", manifests("serving.kserve.io"))
def test_kserve_objects_have_its_types(thing):
    models = pytest.importorskip("kserve.models", reason=SCHEMAS)
    version = thing["apiVersion"].split("/")[1].capitalize()
    of_kserve = model_fields(models, pytest.importorskip("kubernetes.client", reason=SCHEMAS))
    check_fields(thing, f"{version}{thing['kind']}", of_kserve)
    with pytest.raises(AssertionError, match="replica"):
        check_fields(thing | {"replica": 2}, f"{version}{thing['kind']}", of_kserve)


def model_fields(*packages):
    """Returns a function from the name of a generated model to its fields: name -> type."""

    def fields(name):
        for package in packages:
            if model := getattr(package, name, None):
                types = model.openapi_types
                return {model.attribute_map[key]: kind for key, kind in types.items()}
        return None

    return fields


def check_fields(value, kind, fields, place="$"):
    """Checks that a value has the type, as generated models write it: list[str], V1Probe, ..."""
    container, _, rest = kind.rstrip(")]").replace("(", "[").partition("[")
    if container == "list":
        assert isinstance(value, list), f"{place}: {value!r} is no list"
        for number, each in enumerate(value):
            check_fields(each, rest, fields, f"{place}[{number}]")
    elif container == "dict":
        for key, each in value.items():
            check_fields(each, rest.split(", ")[1], fields, f"{place}.{key}")
    elif (known := fields(kind)) is not None:
        assert isinstance(value, dict), f"{place}: {value!r} is no {kind}"
        for key, each in value.items():
            assert key in known, f"{place}: {kind} has no {key}"
            check_fields(each, known[key], fields, f"{place}.{key}")
    elif kind in ("str", "bool", "int"):
        assert type(value) is {"str": str, "bool": bool, "int": int}[kind], f"{place}: {value!r}"


@pytest.mark.parametrize("operation", ["CreateModel", "CreateEndpointConfig"])
def test_sagemaker_takes_the_requests(operation):
    botocore = pytest.importorskip("botocore.loaders", reason=SCHEMAS)
    model = importlib.import_module("botocore.model")
    validate = importlib.import_module("botocore.validate")
    service = model.ServiceModel(botocore.Loader().load_service_model("sagemaker", "service-2"))
    shape = service.operation_model(operation).input_shape
    name = "-".join(re.findall("[A-Z][a-z]+", operation)[1:]).lower()
    request = json.loads((DEPLOYMENT / f"sagemaker-{name}.json").read_text("utf-8"))
    validator = validate.ParamValidator()
    report = validator.validate(request, shape)
    assert not report.has_errors(), report.generate_report()
    assert validator.validate(request | {"replica": 2}, shape).has_errors()


@pytest.mark.parametrize("path", sorted(DEPLOYMENT.glob("*.yaml")), ids=lambda path: path.stem)
def test_our_images_get_commands_that_parse(path):
    ours = [c for each in documents(path.name) for c in containers(each) if is_ours(c)]
    for container in ours:
        assert callable(cli.parse(container.get("args") or container["command"]).run)
    assert ours or "keras-transformers:" not in path.read_text("utf-8")


def test_the_image_is_this_version():
    texts = [path.read_text("utf-8") for path in DEPLOYMENT.iterdir()] + [PAGE.read_text("utf-8")]
    tags = re.findall(r"keras-transformers:([\w.]+)|ARG VERSION=(\S+)", "\n".join(texts))
    assert {tag or version for tag, version in tags} == {keras_transformers.__version__}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("gcloud") is None, reason="needs the Google Cloud SDK")
def test_the_options_of_gcloud_parse(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "gcloud"))  # nobody's account
    for name in ("request.json", "chat.json"):
        (tmp_path / name).write_text("{}")
    text = re.sub(r" \\\n\s+", " ", PAGE.read_text("utf-8"))
    commands = re.findall(r"^    (gcloud .*)$", text, re.MULTILINE)
    assert len(commands) > 5
    for command in commands:
        words = [*shlex.split(command), "--project=nobody"]
        answer = subprocess.run(words, capture_output=True, text=True, check=False)
        assert "do not currently have an active account" in answer.stderr, (command, answer.stderr)


def is_ours(container):
    return str(container.get("image", "")).split(":")[0] == "keras-transformers"


def containers(thing):
    """Returns the containers of a manifest, wherever it names them."""
    if isinstance(thing, list):
        return [container for each in thing for container in containers(each)]
    if not isinstance(thing, dict):
        return []
    inner = [container for each in thing.values() for container in containers(each)]
    return [thing, *inner] if "image" in thing else inner


def test_compose_files_have_its_specification():
    schema = pytest.importorskip("compose_spec", reason=SCHEMAS).PyCompose
    for path in DEPLOYMENT.glob("compose*.yaml"):
        text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", path.read_text("utf-8"))  # as Compose does
        schema.from_yaml(text)
        with pytest.raises(ValueError, match="portz"):
            schema.from_yaml(re.sub(r"\bports:", "portz:", text))


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
