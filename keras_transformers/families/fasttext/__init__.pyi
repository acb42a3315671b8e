# Written by `make stubs`.

from . import files as files
from . import model as model
from .model import SIZES as SIZES
from .model import fasttext as fasttext
from .model import hierarchical_classifier as hierarchical_classifier
from .model import num_parameters as num_parameters
