# Written by `make stubs`.

from . import augmentation as augmentation
from . import batches as batches
from . import labelled_images as labelled_images
from . import options as options
from .batches import ImageBatches as ImageBatches
from .options import ImageFiles as ImageFiles
