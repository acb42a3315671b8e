# Written by `make stubs`.

from . import bidirectional as bidirectional
from . import causal as causal
from . import character_inputs as character_inputs
from . import conversations as conversations
from . import labelled_texts as labelled_texts
from . import text_files as text_files
from .bidirectional import RunningText as RunningText
from .bidirectional import WindowBatches as WindowBatches
from .bidirectional import make_texts as make_texts
from .causal import RowBatches as RowBatches
from .causal import TokenStream as TokenStream
from .character_inputs import CharacterInputs as CharacterInputs
from .character_inputs import WordBatches as WordBatches
from .labelled_texts import NextTokenTextBatches as NextTokenTextBatches
from .text_files import TextFiles as TextFiles
from .text_files import TextFormat as TextFormat
from .text_files import read_texts as read_texts
from .text_files import split_tail as split_tail
