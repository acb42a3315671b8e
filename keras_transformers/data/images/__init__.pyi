# Written by `make stubs`.

from . import augmentation as augmentation
from . import batches as batches
from . import labelled_images as labelled_images
from . import options as options
from .batches import ImageBatches as ImageBatches
from .labelled_images import Images as Images
from .labelled_images import load_folder as load_folder
from .options import ImageAugmentation as ImageAugmentation
from .options import ImageFiles as ImageFiles
