# Written by `make stubs`.

from . import bert_characters as bert_characters
from . import double_array as double_array
from . import make_bert_characters as make_bert_characters
