# Written by `make stubs`.

from . import files as files
from . import gpt2_words as gpt2_words
from . import llama as llama
from . import roberta as roberta
from . import tokenizer as tokenizer
from .llama import LlamaBytePairTokenizer as LlamaBytePairTokenizer
from .roberta import RobertaTokenizer as RobertaTokenizer
from .tokenizer import BytePairTokenizer as BytePairTokenizer
