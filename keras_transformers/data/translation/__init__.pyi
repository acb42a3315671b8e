# Written by `make stubs`.

from . import encoded_pairs as encoded_pairs
from . import pair_batches as pair_batches
from . import parallel_files as parallel_files
from . import parallel_text as parallel_text
from . import pronunciation as pronunciation
from . import token_batches as token_batches
from .encoded_pairs import EncodedPairs as EncodedPairs
from .encoded_pairs import EncodingReport as EncodingReport
from .encoded_pairs import encode_pairs as encode_pairs
from .pair_batches import PairBatches as PairBatches
from .parallel_files import PairSplits as PairSplits
from .parallel_files import ParallelFiles as ParallelFiles
from .parallel_text import Pair as Pair
from .parallel_text import multi30k_files as multi30k_files
from .parallel_text import read_multi30k as read_multi30k
from .parallel_text import read_parallel as read_parallel
from .parallel_text import read_tsv as read_tsv
from .pronunciation import Dictionary as Dictionary
from .pronunciation import Splits as Splits
from .pronunciation import cmudict_path as cmudict_path
from .pronunciation import dictionary_pairs as dictionary_pairs
from .pronunciation import dictionary_symbols as dictionary_symbols
from .pronunciation import read_dictionary as read_dictionary
from .pronunciation import split_words as split_words
