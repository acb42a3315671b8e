# Written by `make stubs`.

from . import callback as callback
from . import callback_states as callback_states
from . import folder_lock as folder_lock
from . import replicas as replicas
from . import run_folder as run_folder
from . import snapshots as snapshots
from . import state as state
from .callback import Position as Position
from .callback import Resume as Resume
from .callback import Stateful as Stateful
from .folder_lock import FolderInUseError as FolderInUseError
from .folder_lock import FolderLock as FolderLock
from .folder_lock import lock_folder as lock_folder
from .run_folder import check_new_run as check_new_run
from .run_folder import check_same as check_same
from .run_folder import write_config as write_config
