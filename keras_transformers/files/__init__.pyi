# Written by `make stubs`.

from . import compression as compression
from . import encodings as encodings
from . import errors as errors
from . import folders as folders
from . import reading as reading
from . import surrogates as surrogates
from . import toml as toml
from . import writing as writing
from .errors import naming as naming
from .errors import one_line as one_line
from .folders import check_plain as check_plain
from .folders import entries as entries
from .folders import may_be_name as may_be_name
from .reading import read_json as read_json
from .reading import read_json_list as read_json_list
from .reading import read_lines as read_lines
from .reading import try_lines as try_lines
from .writing import check_new as check_new
from .writing import check_writable as check_writable
from .writing import new_folder as new_folder
from .writing import replaced as replaced
from .writing import sync as sync
from .writing import sync_tree as sync_tree
from .writing import write_json as write_json
from .writing import write_lines as write_lines
