# Written by `make stubs`.

from . import files as files
from . import keras_nlp as keras_nlp
from . import model as model
from .files import FAMILY as FAMILY
from .model import SIZES as SIZES
from .model import num_parameters as num_parameters
from .model import t5 as t5
