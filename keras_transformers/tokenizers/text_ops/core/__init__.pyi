# Written by `make stubs`.

from . import graphs as graphs
from . import piece_merges as piece_merges
from . import sentence_pieces as sentence_pieces
from . import sentence_text as sentence_text
from . import unigrams as unigrams
from . import utf8 as utf8
from . import word_pieces as word_pieces
