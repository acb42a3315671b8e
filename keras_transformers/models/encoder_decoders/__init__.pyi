# Written by `make stubs`.

from . import from_encoder as from_encoder
from . import marian as marian
from . import seq2seq as seq2seq
from . import t5 as t5
from . import transformer as transformer
from .from_encoder import transformer_from_encoder as transformer_from_encoder
