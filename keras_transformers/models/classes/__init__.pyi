# Written by `make stubs`.

from . import causal_lm as causal_lm
from . import encoder_decoder as encoder_decoder
from . import headed_encoder as headed_encoder
from . import recurrent_seq2seq as recurrent_seq2seq
