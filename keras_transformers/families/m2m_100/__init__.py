"""M2M-100 and NLLB, which translate between many languages (Fan et al. 2020, NLLB Team 2022)."""

from keras_transformers.rooms import open_room

__getattr__, __dir__ = open_room(__name__, __file__)
