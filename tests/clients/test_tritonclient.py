"""The package `tritonclient`, unmodified: the Open Inference Protocol by REST and gRPC."""

import numpy as np
import pytest

http = pytest.importorskip("tritonclient.http", reason="needs tritonclient: make test-clients")
grpc = pytest.importorskip("tritonclient.grpc", reason="needs tritonclient: make test-clients")

FILMS = np.array([b"a good film", "ein Märchen good".encode(), b""], object)


@pytest.fixture(params=["http", "grpc"])
def triton(request, served):
    """The module, and a client of it."""
    if request.param == "http":
        module, client = http, http.InferenceServerClient(served.url.partition("://")[2])
    else:
        module, client = grpc, grpc.InferenceServerClient(served.grpc)
    with client:
        yield module, client


def texts(module, name, values):
    tensor = module.InferInput(name, list(values.shape), "BYTES")
    tensor.set_data_from_numpy(values)
    return tensor


def test_health(triton):
    _, client = triton
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("embedding")
    assert not client.is_model_ready("nobody")


def test_metadata(triton, served):
    module, client = triton
    options = {} if module is http else {"as_json": True}
    server = client.get_server_metadata(**options)
    assert server["name"] == "keras_transformers"
    model = client.get_model_metadata("embedding", **options)
    assert [tensor["name"] for tensor in model["inputs"]] == ["text"]
    assert model["inputs"][0]["datatype"] == "BYTES"
    (output,) = (tensor for tensor in model["outputs"] if tensor["name"] == "embedding")
    assert (output["datatype"], [int(size) for size in output["shape"]]) == ("FP32", [-1, 8])


def test_strings_in_and_floats_out(triton, served):
    module, client = triton
    answer = client.infer("embedding", [texts(module, "text", FILMS)], request_id="a7")
    expected = served.client.predict({"text": FILMS}, model="embedding")["embedding"]
    np.testing.assert_array_equal(answer.as_numpy("embedding"), expected)


def test_strings_out(triton, served):
    module, client = triton
    prompts = np.array([b"a small dog", b"two dogs"], object)
    answer = client.infer("generation", [texts(module, "prompt", prompts)])
    expected = served.client.predict({"prompt": prompts}, model="generation")
    np.testing.assert_array_equal(answer.as_numpy("text"), expected["text"])
    np.testing.assert_array_equal(answer.as_numpy("finished"), expected["finished"])


def test_chosen_outputs(triton, served):
    module, client = triton
    outputs = [module.InferRequestedOutput("probabilities")]
    answer = client.infer("classification", [texts(module, "text", FILMS)], outputs=outputs)
    expected = served.client.predict({"text": FILMS}, model="classification")
    np.testing.assert_array_equal(answer.as_numpy("probabilities"), expected["probabilities"])
    assert answer.as_numpy("label") is None


def test_errors(triton):
    module, client = triton
    from tritonclient.utils import InferenceServerException

    with pytest.raises(InferenceServerException, match="nobody"):
        client.infer("nobody", [texts(module, "text", FILMS)])
    with pytest.raises(InferenceServerException, match="nothing"):
        client.infer("embedding", [texts(module, "nothing", FILMS)])
