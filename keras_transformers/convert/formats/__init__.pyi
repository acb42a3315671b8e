# Written by `make stubs`.

from . import chat_templates as chat_templates
from . import generation_config as generation_config
from . import gguf as gguf
from . import hub as hub
from . import huggingface as huggingface
from . import keras_h5 as keras_h5
from . import keras_nlp as keras_nlp
from . import onnx as onnx
from . import peft as peft
from . import saved_pipeline as saved_pipeline
from . import sentence_transformers as sentence_transformers
from . import tokenizer_files as tokenizer_files
from . import tokenizer_json as tokenizer_json
from . import unigrams as unigrams
from . import weights as weights
from .hub import fetch as fetch
from .onnx import save_onnx as save_onnx
from .weights import Contents as Contents
from .weights import Format as Format
from .weights import FoundWeights as FoundWeights
from .weights import TrainedModel as TrainedModel
from .weights import find_weights as find_weights
from .weights import look as look
