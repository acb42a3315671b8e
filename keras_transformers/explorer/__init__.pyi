# Written by `make stubs`.

from . import application as application
from . import spellings as spellings
from . import subjects as subjects
from . import views as views
from .application import explorer_application as explorer_application
from .application import explorer_server as explorer_server
from .spellings import spell as spell
from .subjects import Subject as Subject
from .subjects import open_subjects as open_subjects
