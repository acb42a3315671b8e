# Written by `make stubs`.

from . import model as model
from .model import SIZES as SIZES
from .model import num_parameters as num_parameters
from .model import seq2seq as seq2seq
