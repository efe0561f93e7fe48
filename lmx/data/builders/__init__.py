"""TFDS builders of lmx, one package per data set; `lmx.data.sources` reads them."""
