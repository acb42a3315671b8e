"""A gateway in front of REST servers needs no TensorFlow, which would take most of its memory."""

import subprocess
import sys

import tensorflow as tf

from keras_transformers.serving.protocol.examples import text_example

SCRIPT = """
import sys

import httpx

from keras_transformers.serving.client.target import Target
from keras_transformers.serving.client.tls import ClientTls
from keras_transformers.serving.gateway.process import Gateway
from keras_transformers.serving.gateway.servers.backend import Servers
from keras_transformers.serving.gateway.servers.connect import connect
from keras_transformers.serving.gateway.servers.replicas import Replicas

server = connect(Target.parse("http://127.0.0.1:1"), ClientTls())
with Gateway(Servers([(Replicas([server]), {"m": "m"})]), port=0, grpc_port=0) as gateway:
    answer = httpx.get(f"http://127.0.0.1:{gateway.port}/v1/models").raise_for_status().json()
assert [model["id"] for model in answer["data"]] == ["m"]
assert "tensorflow" not in sys.modules, "the gateway has loaded TensorFlow"
"""


def test_a_gateway_before_rest_servers_loads_no_tensorflow():
    subprocess.run([sys.executable, "-c", SCRIPT], check=True, timeout=120)


def test_examples_are_those_of_tensorflow():
    for texts in ({"text": "a"}, {"text": "ä" * 5000, "text_b": ""}, {}):
        example = tf.train.Example.FromString(text_example(texts))
        features = example.features.feature
        assert {name: f.bytes_list.value[0].decode() for name, f in features.items()} == texts
