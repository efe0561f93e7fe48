"""TFDS builders of lmx: one package folder per data set, see `lmx.data.sources` for the way to read them."""
