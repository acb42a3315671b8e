# Written by `make stubs`.

from . import bart as bart
from . import files as files
from . import gpt2_words as gpt2_words
from . import merging as merging
from . import roberta as roberta
from . import tokenizer as tokenizer
from .bart import BartTokenizer as BartTokenizer
from .roberta import RobertaTokenizer as RobertaTokenizer
from .tokenizer import BytePairTokenizer as BytePairTokenizer
