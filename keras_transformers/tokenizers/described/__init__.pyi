# Written by `make stubs`.

from . import added_tokens as added_tokens
from . import charsmap as charsmap
from . import decoders as decoders
from . import normalizers as normalizers
from . import parts as parts
from . import patterns as patterns
from . import splitters as splitters
from . import templates as templates
from . import text as text
from . import tokenizer as tokenizer
from . import trie as trie
from . import unicode_tables as unicode_tables
from . import vocabularies as vocabularies
from .charsmap import Charsmap as Charsmap
from .charsmap import charsmap_of as charsmap_of
from .charsmap import charsmap_rules as charsmap_rules
from .parts import Parts as Parts
from .tokenizer import DescribedTokenizer as DescribedTokenizer
