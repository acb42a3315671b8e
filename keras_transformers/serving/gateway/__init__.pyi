# Written by `make stubs`.

from . import apis as apis
from . import application as application
from . import backend as backend
from . import openai as openai
from . import process as process
from . import refusals as refusals
from . import sagemaker as sagemaker
from . import servers as servers
from .process import Gateway as Gateway
