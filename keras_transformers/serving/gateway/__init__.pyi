# Written by `make stubs`.

from . import apis as apis
from . import application as application
from . import backend as backend
from . import configuration as configuration
from . import kserve as kserve
from . import openai as openai
from . import page as page
from . import process as process
from . import refusals as refusals
from . import rerank as rerank
from . import sagemaker as sagemaker
from . import servers as servers
from . import tei as tei
from . import texts as texts
from .process import Gateway as Gateway
