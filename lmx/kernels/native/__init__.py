"""Operations of XLA on a CPU that Numba compiles, with the extra `lmx[numba]`: loops that XLA runs as many small ones.

`frame` reads what XLA passes to such an operation, `windows` has the loops of word2vec. Both import Numba; whoever
offers them, such as lmx/kernels/window_updates.py, imports them when they are used.
"""
