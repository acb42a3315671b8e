# Written by `make stubs`.

from . import files as files
from . import gguf as gguf
from . import model as model
from . import tokenizers as tokenizers
from .files import FAMILY as FAMILY
from .model import SIZES as SIZES
from .model import llama as llama
from .model import num_parameters as num_parameters
