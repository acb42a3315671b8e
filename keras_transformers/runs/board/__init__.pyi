# Written by `make stubs`.

from . import attempts as attempts
from . import epochs as epochs
from . import final as final
from . import tables as tables
